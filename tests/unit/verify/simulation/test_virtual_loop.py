"""Time without waiting, and whose turn it is by the seed alone."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from services.estimator.surveying import Rests
from services.verify.simulation.clocks import BEGINNING, virtual_clocks
from services.verify.simulation.loop import Hanging, Stuck, VirtualLoop
from services.verify.simulation.process import OUTSIDE, Process, current
from shared.runtime.wall_time import WALL


def run(seed, main):
    """What a coroutine function returns that is given a loop of a seed."""
    loop = VirtualLoop(Random(seed))
    try:
        return loop.run_until_complete(loop.create_task(main(loop), context=OUTSIDE.context()))
    finally:
        loop.end()


def spawn(loop, process, coroutine):
    return loop.create_task(coroutine, context=process.context())


def test_an_hour_passes_at_once_and_every_clock_shows_it():
    async def main(loop):
        with virtual_clocks(loop):
            began = time.time(), time.monotonic(), time.perf_counter()
            await asyncio.sleep(3600.0)
            ended = time.time(), time.monotonic(), time.perf_counter()
            return [end - begin for begin, end in zip(began, ended, strict=True)]

    assert run(1, main) == pytest.approx([3600.0] * 3, abs=1e-3)
    assert time.time() < BEGINNING, "the real clock is back"


def test_a_clock_that_was_taken_as_a_default_follows_too():
    async def main(loop):
        with virtual_clocks(loop):
            rests = Rests()
            began_at = rests._clock()
            await asyncio.sleep(100.0)
            return rests._clock() - began_at

    assert run(1, main) == pytest.approx(100.0, abs=1e-3)
    assert Rests()._clock is time.monotonic


def test_each_process_sees_its_own_wall_clock():
    async def main(loop):
        async def look():
            return time.time()

        with virtual_clocks(loop):
            ahead = Process("ahead", clock_offset=2.5)
            return await spawn(loop, ahead, look()) - time.time()

    assert run(1, main) == pytest.approx(2.5, abs=1e-3)


def order_of_turns(seed):
    async def main(loop):
        turns = []

        async def worker():
            for number in range(5):
                turns.append((current().name, number))
                await asyncio.sleep(0)

        await asyncio.gather(*(spawn(loop, Process(name), worker()) for name in "abc"))
        return turns, loop.fingerprint

    return run(seed, main)


def test_the_seed_says_whose_turn_it_is_and_each_process_keeps_its_order():
    first, again, other = order_of_turns(1), order_of_turns(1), order_of_turns(2)
    assert first == again
    assert first[0] != other[0]
    for name in "abc":
        assert [number for who, number in first[0] if who == name] == [0, 1, 2, 3, 4]


def test_a_paused_process_stands_still_and_finds_its_timers_late():
    async def main(loop):
        process, woke = Process("p"), []

        async def sleeper():
            await asyncio.sleep(1.0)
            woke.append(loop.now)

        task = spawn(loop, process, sleeper())
        await asyncio.sleep(0.5)
        loop.pause(process)
        await asyncio.sleep(9.5)
        assert woke == []
        loop.resume(process)
        await task
        return woke[0]

    assert run(1, main) == pytest.approx(10.0, abs=0.01)


def test_a_killed_process_does_nothing_any_more():
    async def main(loop):
        process, done = Process("p"), []

        async def worker():
            await asyncio.sleep(1.0)
            done.append(1)

        spawn(loop, process, worker())._log_destroy_pending = False
        await asyncio.sleep(0.5)
        loop.kill(process)
        await asyncio.sleep(10.0)
        return done

    assert run(1, main) == []


def test_what_one_thread_is_given_is_done_in_its_order():
    async def main(loop):
        random, done = Random(3), []
        loop.thread_seconds = random.random
        executor = ThreadPoolExecutor(1)
        jobs = [loop.run_in_executor(executor, done.append, number) for number in range(20)]
        await asyncio.gather(*jobs)
        return done

    assert run(1, main) == list(range(20))


def test_work_that_hangs_is_begun_again():
    async def main(loop):
        tries = []

        def work():
            tries.append(loop.now)
            if len(tries) < 3:
                raise Hanging(1.0)
            return "done"

        return await asyncio.to_thread(work), len(tries)

    assert run(1, main) == ("done", 3)


def test_a_simulation_that_waits_for_ever_says_so():
    async def main(loop):
        await loop.create_future()

    loop = VirtualLoop(Random(1))
    task = loop.create_task(main(loop))
    with pytest.raises(Stuck):
        loop.run_until_complete(task)
    loop.end()


def test_each_process_has_a_time_of_its_own_that_goes_by_what_it_is_told():
    async def main(loop):
        ahead, right = Process("ahead", clock_offset=1.5), Process("right")

        async def told():
            begun = WALL.now() - BEGINNING - loop.now
            offset = BEGINNING - time.clock_gettime(0) + loop.now
            WALL.steer(offset - 0.01, offset + 0.01)
            return begun, WALL.now() - BEGINNING - loop.now

        with virtual_clocks(loop):
            return [await spawn(loop, process, told()) for process in (ahead, right)]

    (ahead, corrected), (right, untouched) = run(1, main)
    assert ahead == pytest.approx(1.5, abs=1e-3)
    assert corrected == pytest.approx(0.01, abs=1e-3)
    assert (right, untouched) == pytest.approx((0.0, 0.0), abs=1e-3)
    assert WALL.now() < BEGINNING, "the real one is back"


def test_what_is_left_of_a_simulation_does_not_keep_the_next_one_from_running():
    async def left_behind(loop):
        try:
            await asyncio.sleep(100)
        finally:
            spawn(loop, OUTSIDE, asyncio.sleep(1))

    async def main(loop):
        spawn(loop, OUTSIDE, left_behind(loop))
        await asyncio.sleep(1)
        return loop.now

    assert run(1, main) == run(1, main)
