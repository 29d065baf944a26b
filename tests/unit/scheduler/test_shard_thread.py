"""The shards' thread: whose turn it is."""

import asyncio
import threading

import pytest

from services.scheduler.flow import shard_thread
from services.scheduler.flow.shard_thread import ShardThread


class Watch:
    """A clock that functions of the thread move."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Thread:
    """A shards' thread that is held until all has been asked for, and says who did what when."""

    def __init__(self, monkeypatch):
        self.thread, self.done = ShardThread(), []
        self.watch, self.open = Watch(), threading.Event()
        self.tasks = []
        monkeypatch.setattr(shard_thread, "time", self.watch)

    async def hold(self):
        self.open.clear()
        held = threading.Event()

        def wait():
            held.set()
            assert self.open.wait(10)

        self.tasks.append(asyncio.create_task(self.thread.run(wait)))
        await asyncio.to_thread(held.wait, 10)

    async def ask(self, name, *, first=False, seconds=0.0, error=None):
        def do():
            self.done.append(name)
            self.watch.now += seconds
            if error is not None:
                raise error
            return name

        run = self.thread.run_first if first else self.thread.run
        self.tasks.append(task := asyncio.create_task(run(do)))
        await asyncio.sleep(0)
        return task

    async def let_go(self):
        self.open.set()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
def thread(monkeypatch):
    made = Thread(monkeypatch)
    yield made
    made.open.set()
    made.thread.close()


async def test_slots_are_filled_before_all_that_waits(thread):
    await thread.hold()
    await thread.ask("batch")
    await thread.ask("report")
    await thread.ask("slots", first=True)
    assert (await thread.let_go())[1:] == ["batch", "report", "slots"]
    assert thread.done == ["slots", "batch", "report"]


async def test_who_goes_first_leaves_the_others_as_much_time(thread):
    await thread.ask("slots", first=True, seconds=1.0)
    await thread.let_go()
    await thread.hold()
    await thread.ask("batch", seconds=0.6)
    await thread.ask("report", seconds=0.4)
    await thread.ask("estimate", seconds=0.4)
    await thread.ask("more slots", first=True)
    await thread.let_go()
    assert thread.done == ["slots", "batch", "report", "more slots", "estimate"]


async def test_what_goes_first_is_done_although_nothing_else_is(thread):
    assert await (await thread.ask("slots", first=True)) == "slots"
    assert await (await thread.ask("more slots", first=True)) == "more slots"


async def test_errors_reach_who_asked_and_no_other(thread):
    await thread.hold()
    await thread.ask("batch")
    await thread.ask("slots", first=True, error=ValueError("no room"))
    _, batch, slots = await thread.let_go()
    assert batch == "batch"
    assert isinstance(slots, ValueError)


async def test_what_nobody_waits_for_any_more_is_not_begun(thread):
    await thread.hold()
    slots = await thread.ask("slots", first=True)
    await thread.ask("batch")
    await thread.ask("more slots", first=True)
    slots.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    await thread.let_go()
    assert sorted(thread.done) == ["batch", "more slots"]
