"""How records are gathered for a batch: in slices that do not block the loop, at a pace."""

import asyncio
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

SLICE_RECORDS = 4_000
"""Unpacking so many records takes the loop under ten milliseconds; then others get their turn."""

RESTS = 4.0
"""From the beginning of a small batch to that of the next, as a multiple of its duration."""

MOST_LINGERS = 4.0
"""... but no longer than so many times the time that records are gathered anyway."""

WIDER = 8
"""So many times as much is looked through where there are too few records."""

Fetched = dict[TopicPartition, list[ConsumerRecord]]
"""Records in order of offset."""


async def read_slice(consumer: AIOKafkaConsumer, most: int, timeout_ms: int) -> Fetched:
    """Some records, of partitions that have any: few enough not to block the loop."""
    fetched = await consumer.getmany(timeout_ms=timeout_ms, max_records=min(most, SLICE_RECORDS))
    return {tp: records for tp, records in fetched.items() if records}


async def read_on(
    consumer: AIOKafkaConsumer, fetched: Fetched, most_records: int, most_bytes: int
) -> bool:
    """Add what else is there already, in slices, until there is as much as is wanted.

    Returns:
        whether there is: then there may be more of it.
    """
    size = _bytes(fetched)
    while fetched and size < most_bytes and (left := most_records - count_of(fetched)) > 0:
        await asyncio.sleep(0)
        more = await read_slice(consumer, left, timeout_ms=0)
        if not more:
            return False
        size += _bytes(more)
        for tp, records in more.items():
            fetched.setdefault(tp, []).extend(records)
    return bool(fetched)


async def read_tail(
    consumer: AIOKafkaConsumer, tp: TopicPartition, span: int, least: int
) -> list[ConsumerRecord]:
    """The last records of an assigned partition; the consumer stands at their end.

    Args:
        consumer: to which the partition is assigned.
        tp: which.
        span: how many offsets are looked through; not each has a record.
        least: where there are fewer records than that, it looks further back.

    Raises:
        KafkaError: the broker cannot be read.
    """
    begin = (await consumer.beginning_offsets([tp]))[tp]
    end = (await consumer.end_offsets([tp]))[tp]
    while True:
        start = max(begin, end - span)
        consumer.seek(tp, start)
        records: list[ConsumerRecord] = []
        while await consumer.position(tp) < end:
            records += (await consumer.getmany(tp, timeout_ms=1000)).get(tp, [])
        if len(records) >= least or start <= begin:
            return records
        span *= WIDER


async def position_of(consumer: AIOKafkaConsumer, tp: TopicPartition) -> int | None:
    """How far an assigned partition is read; None: it has just been assigned, and nobody has said
    yet from where to read.

    Raises:
        IllegalStateError: it is not assigned.
    """
    try:
        # Only to ask: by itself the client waits until somebody says so, for ever if need be.
        async with asyncio.timeout(0):
            position: int = await consumer.position(tp)
            return position
    except TimeoutError:
        return None


async def passed_over(
    consumer: AIOKafkaConsumer, known: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The positions of partitions whose reader is further than is known of it.

    What it has passed over is no record: the end of a transaction, one that was given up, or
    records that are compacted away. To be asked while no record that was read is still to be done.
    """
    assigned = consumer.assignment()
    moved = {}
    for tp, offset in known.items():
        position = await position_of(consumer, tp) if tp in assigned else None
        if position is not None and position > offset:
            moved[tp] = position
    return moved


def count_of(fetched: Fetched) -> int:
    """How many records there are."""
    return sum(map(len, fetched.values()))


def _bytes(fetched: Fetched) -> int:
    return sum(
        len(record.value) for records in fetched.values() for record in records if record.value
    )


def seconds_between(
    least_seconds: float, spent: float, most_seconds: float, rests: float = RESTS
) -> float:
    """Wall seconds from the beginning of some work to that of the next: more where the first took
    long.

    Args:
        least_seconds: where it took little.
        spent: what it took, seconds.
        most_seconds: however long it took.
        rests: see `RESTS`.
    """
    return min(max(least_seconds, rests * spent), most_seconds)


class Pace:
    """How soon a small batch may follow the one before.

    A batch has a price of its own, beside that of its records: a commit, messages to each shard, a
    turn of each thread. So under load batches become fewer and larger, at a bounded delay. Times
    are wall (monotonic) seconds, handed in.
    """

    def __init__(
        self, linger_seconds: float, most_seconds: float = 0.0, rests: float = RESTS
    ) -> None:
        """Begin without a rest.

        Args:
            linger_seconds: from the beginning of one batch to that of the next, at least.
            most_seconds: at most, under load; `MOST_LINGERS` times as long, if that is more.
            rests: the same as a multiple of the batch's duration.
        """
        self.linger_seconds = linger_seconds
        self._most = max(MOST_LINGERS * linger_seconds, most_seconds)
        self._rests = rests
        self._next_at = 0.0

    def done(self, now: float, spent: float, *, is_full: bool = False) -> None:
        """A batch is done, and took so long; after a full one, nothing is waited for."""
        wait = 0.0
        if not is_full:
            wait = seconds_between(self.linger_seconds, spent, self._most, self._rests)
        self._next_at = now - spent + wait

    def left(self, now: float) -> float:
        """Seconds until the next one."""
        return max(self._next_at - now, 0.0)
