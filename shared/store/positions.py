"""How far a consumer's effects on the database reach into each partition it reads."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np
import psycopg

from shared.store.connection import connect

ESTIMATOR: Final = "estimator"
"""The consumer name under which the writer of page state keeps its positions."""

Positions = dict[tuple[str, int], int]
"""(topic without prefix, partition) → next offset. Missing: the topic's beginning."""


class Superseded(Exception):
    """Another writer has moved these partitions on; its effects must be loaded first."""

    def __init__(self, text: str, shards: Collection[int] = ()) -> None:
        """Say it.

        Args:
            text: what is the matter.
            shards: that have another owner, as far as that is what it is about.
        """
        super().__init__(text)
        self.shards = frozenset(shards)


class Forgotten(Exception):
    """The database has lost commits: what they held is on the topics, and must be read again."""


def require_remembered(
    committed: Mapping[tuple[str, int], int], found: Mapping[tuple[str, int], int]
) -> None:
    """Make sure that the database has all that was committed.

    A standby that is promoted without the last commits, or a backup that is restored, goes on from
    an earlier state: pages and positions went back together. Who still has the later state in
    memory must write nothing from it, and read the topics again from where the database stands.

    Args:
        committed: next offsets of which this process knows that they were durable.
        found: what the database has, asked for afterwards.

    Raises:
        Forgotten: some have gone back; the text says how far.
    """
    lost = {key: at - found.get(key, 0) for key, at in committed.items() if found.get(key, 0) < at}
    if lost:
        where = ", ".join(
            f"{topic} {partition} by {count}" for (topic, partition), count in sorted(lost.items())
        )
        raise Forgotten(
            f"the database has lost commits: {sum(lost.values())} records that had been applied "
            f"are applied again from the topics (positions went back: {where})"
        )


def read_applied(database_url: str, consumer: str, partitions: Iterable[int]) -> Positions:
    """`read_positions` on a connection of its own.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    with connect(database_url, consumer, autocommit=True) as connection:
        return read_positions(connection, consumer, partitions)


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
