"""The records of a batch: by shard and topic, and in the order in which they may be cut."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiokafka import ConsumerRecord

from services.estimator.decoding import Refused
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime.batches import Batch, Positions
from shared.runtime.isolation import Count

ShardRecords = dict[int, dict[str, list[ConsumerRecord]]]
"""Shard → topic (without prefix) → records, in order of offset."""

_FIRST: Final = (HOST_LIMITS.name, PAGE_UPDATES.name)
_BY_TIME: Final = (PAGE_SIGNALS.name, CRAWL_OUTCOMES.name)

MOST_PARTS: Final = 8
"""Of a batch: while the first is applied nothing is stored, and nothing applied beside the last."""

Labelled = tuple[str, ConsumerRecord]
"""A record with its topic's name without the prefix."""


def by_shard(batch: Batch) -> ShardRecords:
    """A batch's records by shard."""
    records: ShardRecords = {}
    for topic, partitions in batch.items():
        for shard, part in partitions.items():
            records.setdefault(shard, {})[topic] = part
    return records


def parted(records: ShardRecords, least: int) -> list[ShardRecords]:
    """The shards of a large batch in parts of about as many records each.

    Args:
        records: of the batch.
        least: about so many are worth a transaction of their own.
    """
    sizes = {shard: sum(map(len, topics.values())) for shard, topics in records.items()}
    total = sum(sizes.values())
    wanted = max(min(total // least, MOST_PARTS), 1)
    parts: list[ShardRecords] = [{}]
    before = 0
    for shard, topics in records.items():
        if before * wanted >= total * len(parts):
            parts.append({})
        parts[-1][shard] = topics
        before += sizes[shard]
    return parts


def not_applied(records: ShardRecords, positions: Positions) -> ShardRecords:
    """The records from these positions on; those before are reflected already."""
    left: ShardRecords = {}
    for shard in sorted(records):
        topics = {}
        for topic, part in records[shard].items():
            begin = positions.get((topic, shard), 0)
            new = part
            if part[0].offset < begin:
                new = [record for record in part if record.offset >= begin]
            if new:
                topics[topic] = new
        if topics:
            left[shard] = topics
    return left


def ends_of(records: ShardRecords) -> Positions:
    """How far the records reach: the positions after them."""
    return {
        (topic, shard): part[-1].offset + 1
        for shard, topics in records.items()
        for topic, part in topics.items()
    }


def in_order(topics: Mapping[str, Sequence[ConsumerRecord]]) -> list[Labelled]:
    """A shard's records in one row that may be cut anywhere.

    Each topic's stay in order of offset, so that each piece leads on to a position. Hosts and pages
    come before what is about them; signals and crawls as they came.
    """
    row = [(topic, record) for topic in _FIRST for record in topics.get(topic, ())]
    return row + list(
        heapq.merge(
            *([(topic, record) for record in topics.get(topic, ())] for topic in _BY_TIME),
            key=lambda item: item[1].timestamp,
        )
    )


def by_topic(row: Iterable[Labelled]) -> dict[str, list[ConsumerRecord]]:
    """A piece of such a row, by topic again."""
    topics: dict[str, list[ConsumerRecord]] = {}
    for topic, record in row:
        topics.setdefault(topic, []).append(record)
    return topics


def counts_of(records: ShardRecords, refused: Sequence[Refused]) -> dict[str, Count]:
    """How many messages of each topic there are, and how many of them are bad."""
    counts: dict[str, Count] = {}
    bad = {
        (letter.record.topic, letter.record.partition, letter.record.offset) for letter in refused
    }
    for topics in records.values():
        for topic, part in topics.items():
            worse = sum((r.topic, r.partition, r.offset) in bad for r in part) if bad else 0
            counts[topic] = counts.get(topic, Count()) + Count(len(part), worse)
    return counts
