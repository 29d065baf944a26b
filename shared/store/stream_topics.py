"""Which topics on the broker the positions of `stream_positions` are about.

A topic that is removed and made anew has its old name, and offsets that mean something else.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import psycopg
import structlog

from shared.store.connection import connect

log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 1.0


class StoredTopics:
    """The ids of topics, kept in the database (see `shared.runtime.continuity.KnownTopics`)."""

    def __init__(self, database_url: str, role: str, *, writes: bool) -> None:
        """Make it; it connects when it is asked.

        Args:
            database_url: libpq URL.
            role: who asks, as seen in `pg_stat_activity`.
            writes: whether it remembers what is not known yet, or only says what is known.
        """
        self._database_url = database_url
        self._role = role
        self._writes = writes

    async def note(self, ids: Mapping[str, str]) -> Mapping[str, str]:
        """Remember the ids of topics of which none is known; waits for the database.

        Returns:
            topic (without prefix) → id that is known now; of others, nothing.
        """
        while True:
            try:
                return await asyncio.to_thread(self._note, ids)
            except psycopg.OperationalError as error:
                log.warning("waiting for the database", error=str(error).strip())
            await asyncio.sleep(AGAIN_SECONDS)

    def _note(self, ids: Mapping[str, str]) -> Mapping[str, str]:
        with connect(self._database_url, self._role) as connection:
            if self._writes:
                note_topics(connection, ids)
            return read_topics(connection)


def read_topics(connection: psycopg.Connection) -> dict[str, str]:
    """Topic (without prefix) → id."""
    rows = connection.execute("SELECT topic, topic_id FROM stream_topics").fetchall()
    return dict(rows)


def note_topics(connection: psycopg.Connection, ids: Mapping[str, str]) -> None:
    """Remember the ids of topics of which none is known."""
    for topic in sorted(ids):
        connection.execute(
            "INSERT INTO stream_topics (topic, topic_id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (topic, ids[topic]),
        )


def set_topic(connection: psycopg.Connection, topic: str, topic_id: str) -> None:
    """Say which topic the positions are about from now on."""
    connection.execute(
        "INSERT INTO stream_topics (topic, topic_id) VALUES (%s, %s) "
        "ON CONFLICT (topic) DO UPDATE SET topic_id = excluded.topic_id",
        (topic, topic_id),
    )
