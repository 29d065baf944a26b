"""People who look after the system: they import pages, and settle what only people may."""

from collections.abc import Callable
from typing import Any, Final

from services.verify.simulation.kafka.broker import Broker, Partition
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import OUTSIDE
from services.verify.simulation.store.database import Database
from services.verify.simulation.store.growth import IMPORTS
from services.verify.simulation.store.imports import ImportStatements
from services.verify.simulation.truth import Break
from services.verify.simulation.workers import Workers
from services.verify.simulation.world import World
from shared.store.positions import ESTIMATOR

LOOK_SECONDS: Final = 0.5

PATIENCE_SECONDS: Final = 9.0
"""Workers must have noticed by then that a topic does not continue what they have read of it. Time
while a server is down does not count."""

STARTED_SECONDS: Final = 0.6
"""A worker is started again so long after it was stopped."""


class Operators:
    """Whoever has `freshet positions settle` and `freshet pages import` at hand."""

    def __init__(
        self,
        loop: VirtualLoop,
        broker: Broker,
        network: Network,
        database: Database,
        workers: Workers,
        world: World,
        say: Callable[[str, str], None],
    ) -> None:
        self._loop, self._broker, self._network = loop, broker, network
        self._database = database
        self._workers, self._world = workers, world
        self._say = say
        self._imports = ImportStatements(database)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=OUTSIDE.context())

    # `freshet positions settle`.

    def settle(self, broken: Break) -> None:
        """Wait until a worker has stopped for a topic, and let all of them go on with it."""
        self._world.truth.breaks.append(broken)
        self._later(LOOK_SECONDS, lambda: self._look(broken))

    def _look(self, broken: Break) -> None:
        for name in sorted(self._workers.lives):
            if broken.topic in (_halted(self._workers.service(name)) or ""):
                broken.noticed_by.add(name)
        is_up = not (self._database.is_down or self._network.is_broker_down)
        broken.looks += is_up
        is_late = broken.looks * LOOK_SECONDS > PATIENCE_SECONDS
        if not (is_up and (broken.noticed_by or is_late)):
            self._later(LOOK_SECONDS, lambda: self._look(broken))
            return
        # Schedulers too: one that has not noticed yet would go on behind what it has not read.
        for name in sorted(self._workers.lives):
            if name.startswith(("estimator", "scheduler")):
                self._workers.kill(name, STARTED_SECONDS)
        self._later(STARTED_SECONDS / 2, lambda: self._go_on(broken))

    def _go_on(self, broken: Break) -> None:
        """All that is there is read again, from its beginning."""
        database = self._database
        for log in self._broker.topics[broken.topic]:
            key = (ESTIMATOR, broken.topic, log.number)
            if self._does_not_continue(log):
                database.positions[key] = log.begin
            log.takes_nothing = False
        database.topics[broken.topic] = self._broker.topic_id(broken.topic)
        self._say("operators", f"settle {broken.topic}")

    def _does_not_continue(self, log: Partition) -> bool:
        database, present = self._database, self._broker.topic_id(log.topic)
        is_other = database.topics.get(log.topic, present) != present
        return is_other or database.positions.get((ESTIMATOR, log.topic, log.number), 0) > log.end

    # `freshet pages import`.

    def begin_import(self) -> None:
        """Keep estimators out; refused while one runs, a shard is split, or all is away."""
        lives = self._workers.lives
        runs = [n for n, life in lives.items() if n.startswith("est") and not life.process.is_dead]
        if runs or self._database.is_down or self._database.is_locked(IMPORTS):
            self._say("operators", "cannot import")
            return
        self._imports.begin_import()

    def import_pages(self) -> None:
        """Add pages, in one commit, and let estimators work again."""
        if not self._database.is_importing:
            return
        if not self._database.is_down:
            self._imports.import_pages(self._world.pages_to_import())
            self._say("operators", "have imported pages")
        self._imports.end_import()


def _halted(service: Any) -> str | None:
    """Why a worker does not read any more."""
    consumer = getattr(service, "_consumer", None)
    return getattr(consumer, "halted", None)
