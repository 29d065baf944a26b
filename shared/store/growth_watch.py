"""Seeing early that shards grow, and that a growth is not over: what comes on new partitions is to
wait for nobody."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from shared.contracts.layout import Layout
from shared.store.layout import read_layout
from shared.store.looking import Looking

EVERY_SECONDS: Final = 1.0


class Partitions(Protocol):
    """What is known of the topics of the shards."""

    @property
    def there(self) -> int:
        """How many partitions each has, as far as is known."""

    def look_again(self) -> None:
        """Ask the broker soon."""


class GrowthWatch:
    """Compares the number of shards in the database with that of the partitions that are known."""

    def __init__(
        self,
        database_url: str,
        partitions: Partitions,
        to_split: Callable[[int], None],
        role: str,
    ) -> None:
        """Make it, not connected yet.

        Args:
            database_url: libpq URL.
            partitions: of the topics, as a consumer knows them.
            to_split: told how many shards are still to be split.
            role: of `shared.store.roles`, that has the right to look.
        """
        self._looking = Looking(database_url, "growth", role)
        self._partitions = partitions
        self._to_split = to_split

    async def run(self, stopping: asyncio.Event) -> None:
        """Look until `stopping` is set; a database that is away is asked again."""
        await self._looking.run(self._turn, EVERY_SECONDS, stopping)

    async def _turn(self) -> None:
        self.note(await asyncio.to_thread(lambda: read_layout(self._looking.connection)))

    def note(self, layout: Layout) -> None:
        """Compare; also for who has read the layout for purposes of its own."""
        self._to_split(layout.to_split)
        if self._partitions.there < layout.shards:
            self._partitions.look_again()
