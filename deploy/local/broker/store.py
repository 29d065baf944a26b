"""What the broker knows beside the logs: topics, producer ids, committed offsets, groups.

A SQLite file, so that every change is whole or not there at all, also after a kill.
"""

import sqlite3
import uuid
from collections.abc import Iterable
from pathlib import Path

import msgspec

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cluster (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS topics (
    name TEXT PRIMARY KEY, directory TEXT NOT NULL, partitions INTEGER NOT NULL,
    config BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS offsets (
    group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    committed INTEGER NOT NULL, metadata TEXT NOT NULL,
    PRIMARY KEY (group_id, topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (group_id TEXT PRIMARY KEY, state BLOB NOT NULL);
"""
_PRODUCER_ID_BLOCK = 1000


class TopicRow(msgspec.Struct, frozen=True):
    """A topic as it is stored; `directory` is the name of its folder."""

    name: str
    directory: str
    partitions: int
    config: dict[str, str]


class MetadataStore:
    """The SQLite file; every method raises sqlite3.Error if the disk fails."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)
        self._next_producer_id = 0
        self._reserved_producer_id = 0

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def cluster_id(self) -> str:
        """Return the cluster's id, made at the first call ever."""
        self._connection.execute(
            "INSERT OR IGNORE INTO cluster VALUES ('cluster_id', ?)", (uuid.uuid4().hex[:22],)
        )
        query = "SELECT value FROM cluster WHERE name = 'cluster_id'"
        return str(self._connection.execute(query).fetchone()[0])

    def new_producer_id(self) -> int:
        """Return a producer id that was never given before, also not before a restart."""
        if self._next_producer_id >= self._reserved_producer_id:
            row = self._connection.execute(
                "INSERT INTO cluster VALUES ('producer_ids', ?) "
                "ON CONFLICT (name) DO UPDATE SET value = value + ? RETURNING value",
                (_PRODUCER_ID_BLOCK, _PRODUCER_ID_BLOCK),
            ).fetchone()
            self._reserved_producer_id = int(row[0])
            self._next_producer_id = self._reserved_producer_id - _PRODUCER_ID_BLOCK
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def topics(self) -> list[TopicRow]:
        """Return all topics."""
        rows = self._connection.execute("SELECT name, directory, partitions, config FROM topics")
        return [TopicRow(n, d, p, msgspec.json.decode(c)) for n, d, p, c in rows]

    def put_topic(self, topic: TopicRow) -> None:
        """Store a new or changed topic."""
        self._connection.execute(
            "INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?)",
            (topic.name, topic.directory, topic.partitions, msgspec.json.encode(topic.config)),
        )

    def delete_topic(self, name: str) -> None:
        """Remove a topic and what groups have committed for it."""
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.execute("DELETE FROM topics WHERE name = ?", (name,))
            self._connection.execute("DELETE FROM offsets WHERE topic = ?", (name,))

    def commit_offsets(self, group_id: str, rows: Iterable[tuple[str, int, int, str]]) -> None:
        """Store (topic, partition, offset, metadata) of a group, all or none."""
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?)",
                [(group_id, *row) for row in rows],
            )

    def committed(self, group_id: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Return {(topic, partition): (offset, metadata)} of a group."""
        rows = self._connection.execute(
            "SELECT topic, partition, committed, metadata FROM offsets WHERE group_id = ?",
            (group_id,),
        )
        return {(topic, partition): (offset, note) for topic, partition, offset, note in rows}

    def put_group(self, group_id: str, state: bytes) -> None:
        """Store a group's members."""
        self._connection.execute("INSERT OR REPLACE INTO groups VALUES (?, ?)", (group_id, state))

    def groups(self) -> dict[str, bytes]:
        """Return the members of every group, and nothing for one that only committed offsets."""
        found = dict.fromkeys(
            (row[0] for row in self._connection.execute("SELECT DISTINCT group_id FROM offsets")),
            b"",
        )
        found.update(self._connection.execute("SELECT group_id, state FROM groups").fetchall())
        return found

    def delete_group(self, group_id: str) -> None:
        """Remove a group and its offsets."""
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.execute("DELETE FROM groups WHERE group_id = ?", (group_id,))
            self._connection.execute("DELETE FROM offsets WHERE group_id = ?", (group_id,))
