"""`freshet shards grow`, as people call it: until it has come to its end, however often it dies.

They may let shards grow once more, and call for that while the growth before is under way.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from services.verify.simulation.blocking import Blocking
from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import Fault
from services.verify.simulation.process import OUTSIDE, Process
from services.verify.simulation.store.database import Database
from services.verify.simulation.world import World
from shared.contracts.databases import Databases
from shared.runtime.growing import OF_SHARDS
from shared.store.splitting import finish, let_be_known, prepare, split_all

FACTORS: Final = (2, 3, 4)
"""So many times as many shards."""

FACTOR_AGAIN: Final = 2
"""The second time: each shard takes more than a second."""

MOST_KILLS: Final = 3
MOST_KILLS_AGAIN: Final = 1
KILLED_AFTER_SECONDS: Final = (0.1, 3.5)
AGAIN_SECONDS: Final = (0.3, 4.0)
"""Between the end of a command and the next call: also for so long that it is taken for gone."""

KNOWN_SECONDS: Final = 0.3
"""The crawlers read new partitions within this."""

WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.2

PATIENCE_SECONDS: Final = 60
"""A growth that is still under way when all is at rest gets so much longer."""

SETTLING_SECONDS: Final = 8.0
"""Workers load what was split last."""

_TOPIC_SECONDS: Final = 0.05
"""Between two topics that get partitions."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What grows."""

    loop: VirtualLoop
    broker: Broker
    network: Network
    database: Database
    world: World
    say: Callable[[str, str], None]


class Growing:
    """Lets the number of shards grow, each time that it is asked for."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._growths: list[_Growth] = []

    def begin(self, fault: Fault) -> None:
        """Call the command."""
        rng = Random(f"growing {fault.detail}")  # noqa: S311 - a simulation; the fault says how
        truth, is_again = self._ground.world.truth, bool(self._growths)
        before = truth.grown_to or self._ground.database.layout.shards
        truth.grown_to = before * (FACTOR_AGAIN if is_again else rng.choice(FACTORS))
        kills = rng.randint(0, MOST_KILLS_AGAIN if is_again else MOST_KILLS)
        growth = _Growth(self._ground, before, truth.grown_to, kills, rng)
        self._growths.append(growth)
        growth.call()

    async def over(self) -> None:
        """Wait until there are as many shards as was asked for, and have been for a while."""
        for _ in range(PATIENCE_SECONDS):
            if all(growth.ended_at is not None for growth in self._growths):
                break
            await asyncio.sleep(1.0)
        last = max((growth.ended_at or 0.0 for growth in self._growths), default=0.0)
        await asyncio.sleep(max(last + SETTLING_SECONDS - self._ground.loop.now, 0.0))

    def close(self) -> None:
        """End what runs."""
        for growth in self._growths:
            growth.close()


class _Growth:
    """One growth: the command, called until it has come to its end."""

    def __init__(self, ground: Ground, before: int, shards: int, kills: int, rng: Random) -> None:
        self._ground, self._before, self._shards = ground, before, shards
        self._kills, self._rng = kills, rng
        self.ended_at: float | None = None
        """When the command came to its end; virtual seconds."""
        self._calls = 0
        self._running: Blocking | None = None
        self._said = ""

    def close(self) -> None:
        """End what runs."""
        if self._running is not None:
            self._running.kill()
            self._running = None

    def call(self) -> None:
        """Call the command; not before there is what it is to grow from."""
        shards = self._ground.database.layout.shards
        if shards < self._before:
            self._call_again()
        elif shards <= self._shards:
            self._begin()
        else:
            self.ended_at = self._ground.loop.now

    def _begin(self) -> None:
        self._calls += 1
        process = Process("shards-grow")
        process.number = 1000 * self._shards + self._calls
        command = self._running = Blocking(self._ground.loop, process, self._grow, self._ended)
        command.start()
        if self._kills:
            self._kills -= 1
            after = self._rng.uniform(*KILLED_AFTER_SECONDS)
            self._later(after, lambda: self._kill(command, process))

    def _kill(self, command: Blocking, process: Process) -> None:
        if self._running is command:
            self._ground.say("operators", "the command that lets shards grow is killed")
            self.close()
            self._ground.database.forget(process)
            self._call_again()

    def _ended(self, error: Exception | None) -> None:
        self._running = None
        if error is None:
            self.ended_at = self._ground.loop.now
            self._ground.say("operators", f"there are {self._shards} shards")
        else:
            self._ground.say("operators", f"shards cannot grow now: {error!r}")
            self._call_again()

    def _call_again(self) -> None:
        self._later(self._rng.uniform(*AGAIN_SECONDS), self.call)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._ground.loop.call_later(seconds, call, context=OUTSIDE.context())

    # The command, which waits by itself.

    def _grow(self) -> None:
        databases = Databases.alone("")
        layout = prepare(databases, self._shards)
        self._add_partitions()
        let_be_known(layout, self._told, KNOWN_SECONDS)
        split_all(databases, layout, self._told, wait_seconds=WAIT_SECONDS)
        finish(databases, layout, self._told)

    def _add_partitions(self) -> None:
        ground = self._ground
        for topic in OF_SHARDS:
            while ground.network.is_broker_down:
                time.sleep(LOOK_SECONDS)
            ground.broker.add_partitions(topic.name, self._shards)
            time.sleep(_TOPIC_SECONDS * self._rng.random())
        ground.world.read_all()

    def _told(self, done: int, total: int, what: str) -> None:
        if what != self._said:
            self._said = what
            self._ground.say("shards-grow", f"{done} of {total}: {what}")
