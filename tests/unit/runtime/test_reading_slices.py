"""A backlog is read in slices that do not block the loop, up to what is wanted."""

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition

from shared.runtime.slices import SLICE_RECORDS, Pace, read_on, read_slice

TP = TopicPartition("t", 0)


class Consumer:
    """Has a backlog, like aiokafka's."""

    def __init__(self, count, size=10):
        self.waiting = deque(SimpleNamespace(value=b"x" * size, offset=n) for n in range(count))
        self.asked = []

    async def getmany(self, timeout_ms, max_records):
        self.asked.append((timeout_ms, max_records))
        return {TP: [self.waiting.popleft() for _ in range(min(max_records, len(self.waiting)))]}


async def read(consumer, most_records, most_bytes=10**9):
    return (await read_full(consumer, most_records, most_bytes))[0]


async def read_full(consumer, most_records, most_bytes=10**9):
    """Offsets, and whether the batch is full."""
    fetched = await read_slice(consumer, most_records, timeout_ms=100)
    is_full = await read_on(consumer, fetched, most_records, most_bytes)
    return [record.offset for record in fetched.get(TP, [])], is_full


async def test_a_backlog_comes_in_slices_and_in_order():
    consumer = Consumer(50_000)
    assert await read(consumer, 20_000) == list(range(20_000))
    assert all(asked <= SLICE_RECORDS for _, asked in consumer.asked)
    assert [timeout for timeout, _ in consumer.asked[1:]] == [0] * (len(consumer.asked) - 1)
    assert consumer.waiting[0].offset == 20_000


async def test_others_get_their_turn_between_two_slices():
    turns = []

    async def other():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await read(Consumer(20_000), 20_000)
    task.cancel()
    assert len(turns) >= 20_000 // SLICE_RECORDS - 1


async def test_large_records_make_a_short_batch():
    consumer = Consumer(50_000, size=1_000)
    assert len(await read(consumer, 20_000, most_bytes=5_000_000)) == 2 * SLICE_RECORDS


@pytest.mark.parametrize(
    ("waiting", "most_records", "most_bytes", "is_full"),
    [
        (50_000, 20_000, 10**9, True),
        (50_000, 20_000, 50_000, True),
        (50_000, 3_000, 10**9, True),
        (19_999, 20_000, 10**9, False),
        (0, 20_000, 10**9, False),
    ],
)
async def test_whether_there_may_be_more_is_known(waiting, most_records, most_bytes, is_full):
    assert (await read_full(Consumer(waiting), most_records, most_bytes))[1] is is_full


async def test_nothing_is_waited_for_when_nothing_is_there():
    consumer = Consumer(0)
    assert await read(consumer, 20_000) == []
    assert consumer.asked == [(100, SLICE_RECORDS)]


def test_a_batch_after_a_quiet_time_does_not_wait():
    pace = Pace(0.05)
    assert pace.left(100.0) == 0.0
    pace.done(100.0, 0.001)
    assert pace.left(100.2) == 0.0


def test_batches_that_take_long_become_fewer_up_to_a_bound():
    pace = Pace(0.05)
    pace.done(100.0, 0.001)
    assert pace.left(100.0) == pytest.approx(0.049)
    pace.done(100.0, 0.03)
    assert pace.left(100.0) == pytest.approx(0.09)
    pace.done(100.0, 1.0)
    assert pace.left(100.0) == 0.0


def test_who_has_time_lets_batches_become_fewer_still():
    pace = Pace(0.05, 1.0)
    pace.done(100.0, 0.001)
    assert pace.left(100.0) == pytest.approx(0.049)
    pace.done(100.0, 0.1)
    assert pace.left(100.0) == pytest.approx(0.3)
    pace.done(100.0, 0.9)
    assert pace.left(100.0) == pytest.approx(0.1)


def test_who_has_still_more_time_works_a_smaller_part_of_it():
    pace = Pace(0.05, 1.0, rests=8.0)
    pace.done(100.0, 0.1)
    assert pace.left(100.0) == pytest.approx(0.7)
    pace.done(100.0, 0.2)
    assert pace.left(100.0) == pytest.approx(0.8)


def test_a_backlog_is_not_waited_with():
    pace = Pace(0.05, 1.0)
    pace.done(100.0, 0.1, is_full=True)
    assert pace.left(100.0) == 0.0


def test_who_does_not_gather_never_waits():
    pace = Pace(0.0)
    pace.done(100.0, 0.5)
    assert pace.left(99.6) == 0.0
