"""Whether the database still has what was committed: looked at now and then, where nothing comes.

An estimator that writes sees it by itself, before it writes anything: whenever it connects, and
whenever it loads a shard. One that is idle would not, and what was lost would stay so.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

import psycopg

from shared.contracts.topics import HOST_PARAMETERS, PAGE_PARAMETERS
from shared.runtime.settings import Settings
from shared.store.positions import ESTIMATOR, Positions, read_applied, require_remembered

EVERY_SECONDS: Final = 10.0

_ANNOUNCED: Final = (PAGE_PARAMETERS.name, HOST_PARAMETERS.name)
"""How far announcements reach is not made durable at once: a server that crashes may forget it, and
some are read twice."""


def durable(positions: Mapping[tuple[str, int], int]) -> Positions:
    """Those of the positions that no database may forget."""
    return {key: offset for key, offset in positions.items() if key[0] not in _ANNOUNCED}


class Remembering:
    """Compares, with a connection of its own."""

    def __init__(
        self, settings: Settings, committed: Callable[[], Mapping[tuple[str, int], int]]
    ) -> None:
        """Make it.

        Args:
            settings: of the process.
            committed: how far this process knows its shards to be applied.
        """
        self._database_url = settings.database_url.get_secret_value()
        self._committed = committed

    async def run(self, stopping: asyncio.Event) -> None:
        """Look until `stopping` is set.

        Raises:
            Forgotten: the database has lost commits; whoever starts again goes on from there.
        """
        while not stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), EVERY_SECONDS)
                return
            await self.look()

    async def look(self) -> None:
        """Compare once; a database that is away is for the next time.

        Raises:
            Forgotten: the database has lost commits.
        """
        committed = self._committed()
        shards = {shard for _, shard in committed}
        with contextlib.suppress(psycopg.Error):
            found = await asyncio.to_thread(read_applied, self._database_url, ESTIMATOR, shards)
            require_remembered(committed, found)
