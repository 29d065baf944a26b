"""What is done to a cluster: to nodes of Apache Kafka, and to PostgreSQL and its standby.

One node away leaves two in sync, so everything goes on once the others lead. A standby that commits
wait for has all of them when it is promoted; one that nobody waits for does not have the last ones.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Final

import numpy as np
import psycopg

from deploy.local.postgres import EmbeddedPostgres
from services.verify.harm import DOWN_SECONDS, PAUSE_SECONDS, WAYS, Harm, harmed
from services.verify.plan import Fault
from services.verify.servers import Cluster
from services.verify.system import System
from shared.runtime.retrying import until_it_passes
from shared.store.positions import ESTIMATOR

BEHIND_SECONDS: Final = (1.0, 3.0)
"""How long a standby that nobody waits for has heard nothing, at least, when it is promoted."""

COMMITS_SECONDS: Final = 60.0
"""A system that works commits something within this."""

_LOOK_SECONDS: Final = 0.05

NOTICED_SECONDS: Final = (0.3, 3.0)
"""How long it takes somebody to see that the primary is gone."""

_BROKER: Final = frozenset({"broker"})
_POSTGRES: Final = frozenset({"postgres"})


class ClusterFaults:
    """Faults of servers of which there are several; all that is left to chance is of the seed."""

    def __init__(self, system: System, servers: Cluster, seed: int) -> None:
        self._system = system
        self._kafka = servers.kafka
        self._pair = servers.pair
        self._names = servers.brokers
        self._disks = servers.disks
        self._rng = np.random.default_rng([seed, 22])

    def ways(self) -> dict[Fault, Callable[[], Awaitable[Harm]]]:
        """How each fault is done."""
        return {
            "node-kill": self._kill_node,
            "node-stop": self._stop_node,
            "node-pause": self._pause_node,
            "node-cut": self._cut_node,
            "standby": self._end_standby,
            "failover": self._fail_over,
            "forget": self._forget,
            "disk": self._fill_disk,
            "node-disk": self._fill_node_disk,
        }

    def _within(self, bounds: tuple[float, float]) -> float:
        return float(self._rng.uniform(*bounds))

    def _node(self) -> int:
        return int(self._rng.choice(sorted(self._kafka.nodes)))

    async def _kill_node(self) -> Harm:
        number, seconds = self._node(), self._within(PAUSE_SECONDS)
        await self._system.in_server_thread(self._kafka.nodes[number].kill)
        await asyncio.sleep(seconds)
        await self._system.in_server_thread(lambda: self._kafka.start([number]))
        return Harm(f"kafka-{number} killed, away for {seconds:.1f} s", _BROKER)

    async def _stop_node(self) -> Harm:
        number = self._node()
        await self._system.in_server_thread(self._kafka.nodes[number].stop)
        await self._system.in_server_thread(lambda: self._kafka.start([number]))
        return Harm(f"kafka-{number} restarted: its leaders moved away and back", _BROKER)

    async def _pause_node(self) -> Harm:
        number, seconds = self._node(), self._within(PAUSE_SECONDS)
        self._kafka.pause(number)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._kafka.resume(number)
        return Harm(f"kafka-{number} paused for {seconds:.1f} s", _BROKER)

    async def _cut_node(self) -> Harm:
        number, seconds = self._node(), self._within(PAUSE_SECONDS)
        name, way = f"kafka-{number}", str(self._rng.choice(WAYS))
        others = [other for other in self._names if other != name]
        links = self._system.network.links_around(name, others)
        with harmed(links, way):
            await asyncio.sleep(seconds)
        return Harm(f"{name} {way} from everybody for {seconds:.1f} s", _BROKER)

    async def _end_standby(self) -> Harm:
        standby, seconds = self._pair.servers[self._pair.standby], self._within(DOWN_SECONDS)
        _signal(standby, signal.SIGKILL)
        await self._system.in_server_thread(standby.stop)
        await asyncio.sleep(seconds)
        await self._system.in_server_thread(standby.start)
        what = f"the standby killed, away for {seconds:.1f} s: commits wait for it"
        return Harm(what, _POSTGRES)

    async def _fail_over(self) -> Harm:
        primary, pause = self._pair.leading, bool(self._rng.integers(2))
        _signal(primary, signal.SIGSTOP if pause else signal.SIGKILL)
        await asyncio.sleep(self._within(NOTICED_SECONDS))
        _signal(primary, signal.SIGKILL)
        await self._system.in_server_thread(primary.stop)
        await self._system.in_server_thread(self._pair.promote)
        ended = time.time()
        await self._system.in_server_thread(self._pair.follow)
        how = "paused" if pause else "killed"
        return Harm(f"PostgreSQL {how}, and its standby promoted", _POSTGRES, ended)

    async def _forget(self) -> Harm:
        primary = self._pair.leading
        name = f"postgres-{self._pair.standby}@postgres-{self._pair.primary}"
        link = self._system.network.link(name)
        await self._system.in_server_thread(lambda: self._pair.wait_for(standby=False))
        link.cut()
        # Nothing reaches the standby from here on: it has no more than what is committed now.
        has = await self._applied()
        await asyncio.sleep(self._within(BEHIND_SECONDS))
        lost = await self._more_than(has)
        _signal(primary, signal.SIGKILL)
        await self._system.in_server_thread(primary.stop)
        link.restore()
        await self._system.in_server_thread(self._pair.promote)
        ended = time.time()
        await self._system.in_server_thread(self._pair.follow)
        what = f"PostgreSQL killed, its standby promoted without the last {lost} records' commits"
        return Harm(what, _POSTGRES, ended, lost)

    async def _fill_disk(self) -> Harm:
        name, seconds = self._pair.primary, self._within(PAUSE_SECONDS)
        with self._disks[f"postgres-{name}"].full():
            await asyncio.sleep(seconds)
        await self._system.in_server_thread(lambda: _up_again(self._pair.leading))
        return Harm(f"PostgreSQL's disk full for {seconds:.1f} s", _POSTGRES)

    async def _fill_node_disk(self) -> Harm:
        number, seconds = self._node(), self._within(PAUSE_SECONDS)
        with self._disks[f"kafka-{number}"].full():
            await asyncio.sleep(seconds)
        # Most often it has ended itself: a broker that cannot write is none.
        await self._system.in_server_thread(self._kafka.nodes[number].kill)
        await self._system.in_server_thread(lambda: self._kafka.start([number]))
        what = f"the disk of kafka-{number} full for {seconds:.1f} s, and the node started anew"
        return Harm(what, _BROKER)

    async def _more_than(self, has: int) -> int:
        """How many more records are applied, once there are any."""
        deadline = time.monotonic() + COMMITS_SECONDS
        while True:
            more = await self._applied() - has
            if more > 0 or time.monotonic() > deadline:
                return more
            await asyncio.sleep(_LOOK_SECONDS)

    async def _applied(self) -> int:
        """How many records are applied; a server may be about to come back from a fault before."""
        found = 0
        async for attempt in until_it_passes(None, _passes, patience_seconds=COMMITS_SECONDS):
            with attempt:
                found = await asyncio.to_thread(applied, self._system.database_url)
        return found


def _passes(error: BaseException) -> bool:
    return isinstance(error, psycopg.OperationalError)


def _up_again(server: EmbeddedPostgres) -> None:
    """Start a server that has ended; one that is still at work is left at it."""
    if not server.accepts_queries():
        server.stop()
        server.start()


def _signal(server: EmbeddedPostgres, number: int) -> None:
    """Send a signal to all processes of a server, as what befalls its machine befalls them all."""
    for process_id in server.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, number)


def applied(database_url: str) -> int:
    """How many records the estimators have applied, of all partitions."""
    query = "SELECT coalesce(sum(next_offset), 0)::int8 FROM stream_positions WHERE consumer = %s"
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute(query, (ESTIMATOR,)).fetchone()
        return int(row[0]) if row is not None else 0
