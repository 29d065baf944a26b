"""Which topics on the broker the positions of `stream_positions` are about.

A topic that is removed and made anew has its old name, and offsets that mean something else.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import psycopg
import structlog

from shared.contracts.databases import Databases
from shared.store.connection import connect
from shared.store.rights import is_waited_for, reason_why_not

log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 1.0


class StoredTopics:
    """The ids of topics, kept in the database (see `shared.runtime.continuity.KnownTopics`)."""

    def __init__(self, databases: Databases, role: str, *, writes: bool) -> None:
        """Make it; it connects when it is asked.

        Args:
            databases: all that have positions. Of several, those that are away, or have no tables
                as they are restored, are left out.
            role: who asks, as seen in `pg_stat_activity`.
            writes: whether it remembers what is not known yet, or only says what is known.
        """
        self._urls = [one.url for one in databases.each]
        self._role = role
        self._writes = writes

    async def note(self, ids: Mapping[str, str]) -> Mapping[str, str]:
        """Remember the ids of topics of which none is known; waits for the database, and for the
        right to.

        Returns:
            topic (without prefix) → id that is known now; of others, nothing. Where databases do
            not agree, one that is not the given one.

        Raises:
            psycopg.Error: all that answer refuse.
        """
        while True:
            asked = (asyncio.to_thread(self._note, url, ids) for url in self._urls)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            known = [answer for answer in answers if not isinstance(answer, BaseException)]
            for error in answers:
                if not isinstance(error, BaseException):
                    continue
                if not (is_waited_for(error) or (known and isinstance(error, psycopg.Error))):
                    raise error
                why = reason_why_not(error, f"freshet_{self._role}")
                log.warning("waiting for the database", error=why)
            if known:
                return _together(known, ids)
            await asyncio.sleep(AGAIN_SECONDS)

    def _note(self, url: str, ids: Mapping[str, str]) -> Mapping[str, str]:
        with connect(url, self._role) as connection:
            if self._writes:
                note_topics(connection, ids)
            return read_topics(connection)


def _together(known: Sequence[Mapping[str, str]], ids: Mapping[str, str]) -> Mapping[str, str]:
    """What several databases know; where they do not agree, another id than the given one."""
    found: dict[str, str] = {}
    for one in known:
        found |= {
            topic: topic_id
            for topic, topic_id in one.items()
            if topic not in found or topic_id != ids.get(topic)
        }
    return found


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
