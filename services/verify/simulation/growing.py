"""`freshet shards grow`, as people call it: until it has come to its end, however often it dies."""

import time
from collections.abc import Callable
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

MOST_KILLS: Final = 3
KILLED_AFTER_SECONDS: Final = (0.1, 3.5)
AGAIN_SECONDS: Final = (0.3, 4.0)
"""Between the end of a command and the next call: also for so long that it is taken for gone."""

KNOWN_SECONDS: Final = 0.3
"""The crawlers read new partitions within this."""

WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.2
_TOPIC_SECONDS: Final = 0.05
"""Between two topics that get partitions."""


class Growing:
    """Lets the number of shards grow, once."""

    def __init__(
        self,
        loop: VirtualLoop,
        broker: Broker,
        network: Network,
        database: Database,
        world: World,
        say: Callable[[str, str], None],
    ) -> None:
        self._loop, self._broker, self._network = loop, broker, network
        self._database, self._world, self._say = database, world, say
        self._rng = Random()  # noqa: S311 - a simulation; the fault says how it begins
        self._shards = 0
        self._kills = 0
        self._calls = 0
        self._running: Blocking | None = None
        self._said = ""

    def begin(self, fault: Fault) -> None:
        """Call the command."""
        if self._shards:
            return
        self._rng.seed(f"growing {fault.detail}")
        self._shards = self._rng.choice(FACTORS) * self._database.layout.shards
        self._kills = self._rng.randint(0, MOST_KILLS)
        self._world.truth.grown_to = self._shards
        self._call()

    def close(self) -> None:
        """End what runs."""
        if self._running is not None:
            self._running.kill()
            self._running = None

    def _call(self) -> None:
        self._calls += 1
        process = Process("shards-grow")
        process.number = 1000 + self._calls
        command = self._running = Blocking(self._loop, process, self._grow, self._ended)
        command.start()
        if self._kills:
            self._kills -= 1
            after = self._rng.uniform(*KILLED_AFTER_SECONDS)
            self._later(after, lambda: self._kill(command, process))

    def _kill(self, command: Blocking, process: Process) -> None:
        if self._running is command:
            self._say("operators", "the command that lets shards grow is killed")
            self.close()
            self._database.forget(process)
            self._call_again()

    def _ended(self, error: Exception | None) -> None:
        self._running = None
        if error is None:
            self._say("operators", f"there are {self._shards} shards")
        else:
            self._say("operators", f"shards cannot grow now: {error!r}")
            self._call_again()

    def _call_again(self) -> None:
        self._later(self._rng.uniform(*AGAIN_SECONDS), self._call)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=OUTSIDE.context())

    # The command, which waits by itself.

    def _grow(self) -> None:
        databases = Databases.alone("")
        layout = prepare(databases, self._shards)
        self._add_partitions()
        let_be_known(layout, self._told, KNOWN_SECONDS)
        split_all(databases, layout, self._told, wait_seconds=WAIT_SECONDS)
        finish(databases, layout, self._told)

    def _add_partitions(self) -> None:
        for topic in OF_SHARDS:
            while self._network.is_broker_down:
                time.sleep(LOOK_SECONDS)
            self._broker.add_partitions(topic.name, self._shards)
            time.sleep(_TOPIC_SECONDS * self._rng.random())
        self._world.read_all()

    def _told(self, done: int, total: int, what: str) -> None:
        if what != self._said:
            self._said = what
            self._say("shards-grow", f"{done} of {total}: {what}")
