"""How far a consumer's effects on the database reach into each partition it reads."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import psycopg

ESTIMATOR: Final = "estimator"
"""The consumer name under which the writer of page state keeps its positions."""

Positions = dict[tuple[str, int], int]
"""(topic without prefix, partition) → next offset. Missing: the topic's beginning."""


class Superseded(Exception):
    """Another writer has moved these partitions on; its effects must be loaded first."""


def read_positions(
    connection: psycopg.Connection, consumer: str, partitions: Iterable[int]
) -> Positions:
    """A consumer's positions in some partitions of all topics."""
    rows = connection.execute(
        "SELECT topic, partition, next_offset FROM stream_positions "
        "WHERE consumer = %s AND partition = ANY(%s)",
        (consumer, np.array(sorted(partitions), np.int32)),
    ).fetchall()
    return {(topic, partition): next_offset for topic, partition, next_offset in rows}


def advance_positions(
    connection: psycopg.Connection,
    consumer: str,
    before: Mapping[tuple[str, int], int],
    after: Mapping[tuple[str, int], int],
) -> None:
    """Move positions on, if they still are where this writer believes them to be.

    The first statement of a writer's transaction: it locks the partitions' rows, so of two
    writers that hold the same partition for a moment (a group rebalances while a batch is under
    way) only one succeeds.

    Args:
        connection: with the transaction that also holds the effects.
        consumer: whose positions.
        before: the positions that this writer last saw; missing means 0.
        after: the new ones.

    Raises:
        Superseded: somebody else moved one of them.
    """
    keys = sorted(after)
    columns = (
        consumer,
        [topic for topic, _ in keys],
        np.array([partition for _, partition in keys], np.int32),
        np.array([before.get(key, 0) for key in keys], np.int64),
        np.array([after[key] for key in keys], np.int64),
    )
    connection.execute(
        "INSERT INTO stream_positions (consumer, topic, partition, next_offset) "
        "SELECT %s, topic, partition, 0 FROM unnest(%s::text[], %s::int4[]) "
        "AS new (topic, partition) ORDER BY topic, partition ON CONFLICT DO NOTHING",
        columns[:3],
    )
    moved = connection.execute(
        "UPDATE stream_positions AS position SET next_offset = moved.after "
        "FROM unnest(%s::text[], %s::int4[], %s::int8[], %s::int8[]) "
        "AS moved (topic, partition, before, after) "
        "WHERE position.consumer = %s AND position.topic = moved.topic "
        "AND position.partition = moved.partition AND position.next_offset = moved.before",
        (*columns[1:], consumer),
    ).rowcount
    if moved != len(keys):
        raise Superseded(
            f"{len(keys) - moved} of {len(keys)} partitions were moved on by another {consumer}"
        )


def raise_positions(
    connection: psycopg.Connection, consumer: str, after: Mapping[tuple[str, int], int]
) -> None:
    """Set positions that never go back: those of a topic that the consumer writes itself."""
    keys = sorted(after)
    connection.execute(
        "INSERT INTO stream_positions (consumer, topic, partition, next_offset) "
        "SELECT %s, * FROM unnest(%s::text[], %s::int4[], %s::int8[]) "
        "AS new (topic, partition, next_offset) ORDER BY topic, partition "
        "ON CONFLICT (consumer, topic, partition) DO UPDATE SET next_offset = "
        "greatest(stream_positions.next_offset, excluded.next_offset)",
        (
            consumer,
            [topic for topic, _ in keys],
            np.array([partition for _, partition in keys], np.int32),
            np.array([after[key] for key in keys], np.int64),
        ),
    )
