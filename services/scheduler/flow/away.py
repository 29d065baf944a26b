"""Databases that are away while shards of theirs are to be loaded: the others' are, meanwhile."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import psycopg
import structlog

from shared.contracts.databases import Database, Databases
from shared.runtime.batches import Positions
from shared.store.connection import PASSING
from shared.store.deployment import StoreMismatch
from shared.store.rights import SCHEDULER, reason_why_not

log = structlog.get_logger(__name__)


class Away:
    """Which of several databases are away, and which shards are therefore not there."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._why: dict[Database, str] = {}
        self.shards: set[int] = set()
        """That could not be loaded."""

    @property
    def trouble(self) -> str | None:
        """Why shards cannot be loaded; None: all could be."""
        return next(iter(self._why.values()), None)

    def absent(self) -> set[int]:
        """The same, as of now."""
        return set(self.shards)

    async def unless_away(
        self, database: Database, shards: set[int], load: Awaitable[Positions]
    ) -> Positions:
        """The positions of shards that are being loaded; none, if their database is away."""
        self.shards -= shards
        try:
            positions = await load
        except (*PASSING, StoreMismatch, psycopg.errors.InsufficientPrivilege) as error:
            # Also one without tables or a right, or with others' shards: those of the others go on.
            if not self._databases.are_several:
                raise
            self.shards |= shards
            why = reason_why_not(error, SCHEDULER)
            self._why[database] = f"shards {database.held} cannot be loaded: {why}"
            log.warning("a database is away", shards=database.held, error=why)
            return {}
        self._why.pop(database, None)
        return positions

    def forget(self, shards: set[int]) -> None:
        """Shards go elsewhere."""
        self.shards -= shards
        left = self._databases.shared(self.shards)
        self._why = {database: why for database, why in self._why.items() if database in left}


async def together(*awaitables: Awaitable[Any]) -> list[Any]:
    """The results of all; if one fails, the others are given up."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
