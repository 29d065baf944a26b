"""The functions of `shared.store.lease`, on the model."""

import asyncio
from typing import Final

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.loop import Hanging
from services.verify.simulation.process import Process, current
from services.verify.simulation.store.database import Database
from shared.store.lease import Lease

_ASK_SECONDS: Final = 0.002


class LeaseConnection:
    """A coordinator's connection."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.is_open = True

    async def close(self) -> None:
        """Disconnect."""
        self.is_open = False


class LeaseStatements:
    """Those of `shared.store.lease`, on the model."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _reach(self) -> None:
        while True:
            await asyncio.sleep(_ASK_SECONDS)
            try:
                self._database.check()
            except Hanging as hanging:
                await asyncio.sleep(hanging.seconds)
            else:
                return

    async def connect_lease(self, database_url: str) -> LeaseConnection:  # noqa: ARG002
        """As `shared.store.lease.connect_lease`."""
        await self._reach()
        return LeaseConnection(current())

    async def read_lease(self, connection: LeaseConnection) -> Lease:  # noqa: ARG002
        """As `shared.store.lease.read_lease`."""
        await self._reach()
        row = self._database.lease
        session = row["session"]
        alive = session is not None and session.is_open and not session.process.is_dead
        return Lease(row["epoch"], row["holder"], row["beat"], alive)

    async def take_lease(
        self, connection: LeaseConnection, holder: str, seen: Lease, above: int
    ) -> int | None:
        """As `shared.store.lease.take_lease`."""
        await self._reach()
        row = self._database.lease
        if (row["epoch"], row["holder"], row["beat"]) != seen[:3]:
            return None
        least = int(1000 * (BEGINNING + self._database.loop.now))
        epoch = max(max(int(row["epoch"]), above) + 1, least)
        self._database.lease = {"epoch": epoch, "holder": holder, "beat": 0, "session": connection}
        return epoch

    async def renew_lease(self, connection: LeaseConnection, epoch: int, holder: str) -> bool:
        """As `shared.store.lease.renew_lease`."""
        await self._reach()
        row = self._database.lease
        if (row["epoch"], row["holder"]) != (epoch, holder):
            return False
        row["beat"] += 1
        row["session"] = connection
        return True

    async def release_lease(
        self,
        connection: LeaseConnection,  # noqa: ARG002
        epoch: int,
        holder: str,
    ) -> None:
        """As `shared.store.lease.release_lease`."""
        await self._reach()
        row = self._database.lease
        if (row["epoch"], row["holder"]) == (epoch, holder):
            row["holder"] = ""
