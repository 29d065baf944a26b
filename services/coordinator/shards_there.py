"""Which shards there are, as the database says: only they can be missed."""

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import Final

import psycopg

from shared.contracts.layout import Layout
from shared.store.deployment import StoreMismatch
from shared.store.layout import fetch_layout

LOOK_SECONDS: Final = 15.0
"""Between two looks: shards become more when operators say so."""


class ShardsThere:
    """What was read last; until then, and where there is no answer, it is not known."""

    def __init__(self) -> None:
        """Know nothing."""
        self._count: int | None = None
        self._with_hosts: frozenset[int] = frozenset()
        self.known_since = 0.0
        """Wall (monotonic) seconds of the first answer."""

    async def run(self, database_url: str, stopping: asyncio.Event) -> None:
        """Look again and again until `stopping` is set.

        Args:
            database_url: libpq URL, of the home.
            stopping: ends it.
        """
        while not stopping.is_set():
            # Where the database is away the lease's watch says so.
            with contextlib.suppress(psycopg.Error, StoreMismatch):
                layout = await asyncio.to_thread(fetch_layout, database_url, "coordinator")
                self.take(layout, time.monotonic())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)

    def take(self, layout: Layout, wall: float) -> None:
        """Take what the database says, at a wall time."""
        if self._count is None:
            self.known_since = wall
        # Of several databases the home's: what was split in others of late, it may not know.
        self._count, self._with_hosts = layout.shards, frozenset(layout.having_hosts)

    def silent(self, heard: Collection[int], live: Collection[int]) -> set[int]:
        """The shards that there are, and of which no scheduler speaks.

        One that reported once and that there is not, as it was of another installation, is not
        missed; one that has not reported since we began is.

        Args:
            heard: all that have ever reported, or had a share.
            live: those of them that report.
        """
        if self._count is None:
            return set(heard) - set(live)
        there = {shard for shard in heard if shard < self._count} | self._with_hosts
        return there - set(live)
