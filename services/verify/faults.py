"""What is done to the system: each fault by its name, at what it hits, and for how long."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from aiokafka.errors import KafkaError

from services.verify.cluster_faults import ClusterFaults
from services.verify.crawlers import Crawlers
from services.verify.growing import Growth
from services.verify.harm import DOWN_SECONDS, PAUSE_SECONDS, WAYS, Harm, harmed
from services.verify.plan import Fault, VerifyPlan
from services.verify.poison import Poison
from services.verify.sending import Sender
from services.verify.servers import Cluster, OneOfEach
from services.verify.system import System

SOFT: Final[frozenset[Fault]] = frozenset({"duplicate", "reorder", "poison"})
"""Faults of what comes from outside; they go on beside those of the system itself."""

SOFT_SECONDS: Final = (2.0, 6.0)
STEP_SECONDS: Final = (0.3, 7200.0)
"""How far a machine's clock is off, ahead or behind, once it is set."""

MOST_SCHEDULERS: Final = 3

ALL_SHARE: Final = 0.15
"""Kills that hit every worker at once."""


@dataclass(slots=True)
class Injected:
    """A fault that was injected."""

    kind: Fault
    what: str
    """Whom it hit, and how."""
    began: float
    """Unix seconds."""
    ended: float
    """Unix seconds at which nothing held the system down any more."""
    settled: float | None = None
    """Unix seconds at which it was seen at its budget again; None: never."""
    hit: frozenset[str] = frozenset()
    """What was down for it: kinds of workers, `broker`, `postgres`. Faults of what comes from
    outside take nothing down."""
    forgotten: int = 0
    """Records whose effects PostgreSQL had committed, and lost."""


_NOTHING: Final[frozenset[str]] = frozenset()


def _kinds(*workers: str) -> frozenset[str]:
    return frozenset(name.partition("-")[0] for name in workers)


class Injector:
    """Injects faults; all that is left to chance comes from the seed."""

    def __init__(
        self, system: System, sender: Sender, crawlers: Crawlers, poison: Poison, plan: VerifyPlan
    ) -> None:
        self.injected: list[Injected] = []
        self.now: dict[str, float] = {}
        """What is being done, since when (Unix seconds)."""
        self._system = system
        self._sender = sender
        self._poison = poison
        self._away = plan.away_seconds or DOWN_SECONDS
        self._rng = np.random.default_rng([plan.seed, 21])
        self._ways: dict[Fault, Callable[[], Awaitable[Harm]]] = {
            "kill": self._kill,
            "term": self._term,
            "pause": self._pause,
            "rebalance": self._rebalance,
            "broker": self._broker,
            "postgres": self._postgres,
            "network": self._network,
            "clock": self._clock,
            "duplicate": self._duplicate,
            "reorder": self._reorder,
            "poison": self._write_poison,
            "upgrade": self._upgrade,
            "grow": Growth(system, sender, crawlers, poison, plan.seed).grow,
        }
        servers = system.servers
        if isinstance(servers, Cluster):
            self._ways |= ClusterFaults(system, servers, plan.seed).ways()

    @property
    def _one(self) -> OneOfEach:
        if not isinstance(self._system.servers, OneOfEach):
            raise TypeError("there are several brokers")
        return self._system.servers

    async def inject(self, kind: Fault) -> Injected:
        """Do it, and undo what can be undone."""
        began = time.time()
        self.now[kind] = began
        try:
            harm = await self._ways[kind]()
        finally:
            del self.now[kind]
        ended = harm.ended or time.time()
        done = Injected(kind, harm.what, began, ended, None, harm.hit, harm.forgotten)
        self.injected.append(done)
        return done

    def _within(self, bounds: tuple[float, float]) -> float:
        return float(self._rng.uniform(*bounds))

    def _victim(self) -> str:
        """A worker: every kind as often, however many there are of it."""
        names = sorted(self._system.ports)
        kinds = sorted({name.partition("-")[0] for name in names})
        return str(self._rng.choice(self._system.instances(str(self._rng.choice(kinds)))))

    async def _running_victim(self) -> str:
        name = self._victim()
        while self._system.pid_of(name) is None:  # noqa: ASYNC110 - it is being started again
            await asyncio.sleep(0.05)
        return name

    async def _kill(self) -> Harm:
        if self._rng.random() < ALL_SHARE:
            killed = [n for n in self._system.ports if self._system.send(n, signal.SIGKILL)]
            return Harm(f"{', '.join(killed)} killed at once", _kinds(*killed))
        name = await self._running_victim()
        self._system.send(name, signal.SIGKILL)
        return Harm(f"{name} killed", _kinds(name))

    async def _term(self) -> Harm:
        name = await self._running_victim()
        self._system.send(name, signal.SIGTERM)
        return Harm(f"{name} told to stop", _kinds(name))

    async def _pause(self) -> Harm:
        name, seconds = await self._running_victim(), self._within(PAUSE_SECONDS)
        pid = self._system.pid_of(name)
        if pid is None:
            return Harm(f"{name} was gone", _kinds(name))
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return Harm(f"{name} paused for {seconds:.1f} s", _kinds(name))

    async def _rebalance(self) -> Harm:
        have = self._system.instances("scheduler")
        size = 3 if len(have) == 1 else len(have) - 1
        for number in range(1, MOST_SCHEDULERS + 1):
            name = f"scheduler-{number}"
            if number <= size and name not in have:
                await self._system.start_worker(name)
        for name in have[size:]:
            await self._system.end_worker(name)
        return Harm(f"{len(have)} → {size} schedulers", frozenset({"scheduler"}))

    async def _broker(self) -> Harm:
        kill, seconds = bool(self._rng.integers(2)), self._within(self._away)
        broker = self._one.broker
        await self._system.in_server_thread(broker.kill if kill else broker.stop)
        await asyncio.sleep(seconds)
        await self._system.in_server_thread(broker.start)
        what = f"broker {'killed' if kill else 'stopped'}, away for {seconds:.1f} s"
        return Harm(what, frozenset({"broker"}))

    async def _postgres(self) -> Harm:
        kill, seconds = bool(self._rng.integers(2)), self._within(self._away)
        postgres = self._system.servers.leading
        if kill and postgres.process_id is not None:
            os.kill(postgres.process_id, signal.SIGKILL)
        await self._system.in_server_thread(postgres.stop)
        await asyncio.sleep(seconds)
        await self._system.in_server_thread(postgres.start)
        what = f"PostgreSQL {'killed' if kill else 'stopped'}, away for {seconds:.1f} s"
        return Harm(what, frozenset({"postgres"}))

    async def _network(self) -> Harm:
        name, seconds = self._victim(), self._within(PAUSE_SECONDS)
        servers = self._system.servers
        chosen = int(self._rng.integers(3))
        places = [servers.brokers, servers.databases, servers.brokers + servers.databases][chosen]
        way = str(self._rng.choice(WAYS))
        links = self._system.network.links_of(name, places)
        with harmed(links, way):
            await asyncio.sleep(seconds)
        from_where = ["kafka", "postgres", "kafka and postgres"][chosen]
        return Harm(f"{name} {way} from {from_where} for {seconds:.1f} s", _kinds(name))

    async def _clock(self) -> Harm:
        name = self._victim()
        seconds = float(self._rng.choice([-1.0, 1.0])) * self._within(STEP_SECONDS)
        self._system.set_clock(name, seconds)
        return Harm(f"clock of {name} set to {seconds:+.0f} s", _NOTHING)

    async def _upgrade(self) -> Harm:
        name = await self._system.upgrade(lambda waiting: str(self._rng.choice(waiting)))
        return Harm(f"{name} upgraded", frozenset() if name is None else _kinds(name))

    async def _duplicate(self) -> Harm:
        seconds = self._within(SOFT_SECONDS)
        self._sender.twice = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self._sender.twice = False
        return Harm(f"everything sent twice for {seconds:.1f} s", _NOTHING)

    async def _reorder(self) -> Harm:
        seconds = self._within(SOFT_SECONDS)
        self._sender.late = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self._sender.late = False
        return Harm(f"everything late and out of order for {seconds:.1f} s", _NOTHING)

    async def _write_poison(self) -> Harm:
        while True:
            try:
                count = await self._poison.write()
            except KafkaError:
                await asyncio.sleep(0.5)  # the broker is away
            else:
                return Harm(f"{count} bad messages", _NOTHING)
