"""A large batch is done in parts, of which one is stored while the next is applied."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.estimator.ordering import MOST_PARTS, parted
from services.estimator.overlapping import overlapping
from shared.runtime.isolation import TooManyBadMessages

TOPIC = "crawl-outcomes"


def anything(_applied):
    """Nothing is refused."""


class Work:
    """Notes what happens; what is given a gate waits for it."""

    def __init__(self, gates=(), failing=()):
        self.told = []
        self.gates, self.failing = dict(gates), set(failing)

    async def _do(self, kind, part):
        self.told.append(f"{kind} {part}")
        await self.gates.get((kind, part), asyncio.sleep)(0)
        if (kind, part) in self.failing:
            self.told.append(f"{kind} {part} fails")
            raise ValueError(f"{kind} {part}")
        self.told.append(f"{kind} {part} done")
        return part

    def apply(self, part):
        return self._do("apply", part)

    async def store(self, part):
        await self._do("store", part)

    def run(self, parts, check=anything):
        return overlapping(parts, self.apply, self.store, check)


async def test_a_part_is_applied_while_the_one_before_is_stored():
    applied = asyncio.Event()
    work = Work(gates={("store", 1): lambda _: applied.wait()})
    running = asyncio.create_task(work.run([1, 2, 3]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert work.told == ["apply 1", "apply 1 done", "apply 2", "store 1", "apply 2 done"]
    applied.set()
    await running
    assert work.told.index("store 1 done") < work.told.index("store 2")
    assert work.told.index("store 2 done") < work.told.index("store 3")
    assert work.told[-1] == "store 3 done"


async def test_where_storing_fails_nothing_more_is_stored():
    work = Work(failing=[("store", 1)])
    with pytest.raises(ValueError, match="store 1"):
        await work.run([1, 2, 3])
    assert "store 2" not in work.told
    assert "apply 3" not in work.told


async def test_where_applying_fails_what_is_being_stored_comes_to_its_end():
    slow = asyncio.Event()
    work = Work(gates={("store", 1): lambda _: slow.wait()}, failing=[("apply", 2)])
    running = asyncio.create_task(work.run([1, 2]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert "apply 2 fails" in work.told
    assert not running.done()
    slow.set()
    with pytest.raises(ValueError, match="apply 2"):
        await running
    assert work.told[-1] == "store 1 done"


async def test_of_two_failures_that_of_the_caller_is_told_and_none_is_forgotten():
    loop, unheard = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, context: unheard.append(context))
    work = Work(failing=[("store", 1), ("apply", 2)])
    with pytest.raises(ValueError, match="apply 2"):
        await work.run([1, 2])
    del work
    await asyncio.sleep(0)
    assert unheard == []


async def test_parts_with_many_bad_messages_wait_for_the_others():
    def check(applied):
        if sum(applied) < 4:
            raise TooManyBadMessages(TOPIC, "many")

    work = Work()
    await work.run([1, 2, 3], check)
    assert work.told.index("apply 3 done") < work.told.index("store 1")
    assert work.told[-1] == "store 3 done"
    work = Work()
    with pytest.raises(TooManyBadMessages):
        await work.run([1, 2], check)
    assert not any(told.startswith("store") for told in work.told)


@pytest.mark.slow(1)
@given(st.dictionaries(st.integers(0, 99), st.integers(1, 5000), min_size=1), st.integers(1, 3000))
def test_parts_are_all_of_a_batch_in_its_order_and_about_equal(sizes, least):
    record = SimpleNamespace()
    records = {shard: {TOPIC: [record] * size} for shard, size in sizes.items()}
    parts = parted(records, least)
    assert [shard for part in parts for shard in part] == list(records)
    assert all(part[shard] is records[shard] for part in parts for shard in part)
    total, largest = sum(sizes.values()), max(sizes.values())
    assert 1 <= len(parts) <= min(MOST_PARTS, max(total // least, 1))
    for part in parts:
        share = total / max(min(MOST_PARTS, total // least), 1)
        assert 0 < sum(sizes[shard] for shard in part) < share + largest
