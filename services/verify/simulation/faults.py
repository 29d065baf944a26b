"""Doing what the plan says goes wrong, and mending it."""

from collections.abc import Callable
from typing import Final

from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import Fault, SimulationPlan
from services.verify.simulation.process import OUTSIDE
from services.verify.simulation.store.database import Database
from services.verify.simulation.workers import Workers
from services.verify.simulation.world import World
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, Topic

MOST_AHEAD_SECONDS: Final = 1.5
"""Clocks go wrong by so much, ahead or behind."""

LED: Final = (CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES)
"""Topics of which a partition may lose its leader."""

HELD_SECONDS: Final = 1.5
"""Signals are held up for so long, before a member is overtaken: its batch has outcomes alone."""

_PLACES: Final = ("before", "amid", "after")


class Injector:
    """Does the faults of a plan when their time comes."""

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
        self._database, self._workers, self._world = database, workers, world
        self._say = say
        self._database_downs = 0
        self._broker_downs = 0
        self._actions: dict[str, Callable[[Fault], None]] = {
            "kill": lambda f: self._workers.kill(f.target, f.seconds),
            "kill-in-commit": self._kill_in_commit,
            "term": lambda f: self._workers.terminate(f.target),
            "pause": self._pause,
            "rebalance": self._rebalance,
            "broker-down": self._broker_down,
            "database-down": self._database_down,
            "long-database-outage": self._database_down,
            "cut-broker": self._cut_broker,
            "deaf": self._cut_broker,
            "cut-database": self._cut_database,
            "clock": self._step_clock,
            "duplicate": lambda f: self._world.repeat(f.detail),
            "bad-message": lambda f: self._world.poison(f.detail),
            "marker": lambda _: self._world.mark(),
            "bandwidth": self._set_budget,
            "leader-lost": self._lose_leader,
            "overtaken": self._overtake,
        }

    def start(self, plan: SimulationPlan) -> None:
        """Wait for the faults of a plan."""
        for fault in plan.faults:
            self._later(fault.at, lambda fault=fault: self._do(fault))  # type: ignore[misc]

    def _do(self, fault: Fault) -> None:
        self._say("fault", f"{fault.kind} {fault.target}".strip())
        self._actions[fault.kind](fault)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=OUTSIDE.context())

    def _mend(self, fault: Fault, call: Callable[[], None]) -> None:
        def mend() -> None:
            self._say("mended", f"{fault.kind} {fault.target}".strip())
            call()

        self._later(fault.seconds, mend)

    def _kill_in_commit(self, fault: Fault) -> None:
        self._database.kill_at[fault.target] = _PLACES[int(fault.detail * len(_PLACES))]

    def _pause(self, fault: Fault) -> None:
        process = self._workers.lives[fault.target].process
        self._loop.pause(process)
        self._mend(fault, lambda: self._loop.resume(process))

    def _rebalance(self, fault: Fault) -> None:
        groups = self._broker.groups
        for group in groups.all():
            if group.name != fault.target or not group.members:
                continue
            names = sorted(group.members)
            if fault.detail < 0.5:
                groups.rebalance(group, "the broker says so")
            else:
                name = names[int(fault.detail * 1e6) % len(names)]
                groups.leave(group, name, "is taken out")

    def _broker_down(self, fault: Fault) -> None:
        self._network.is_broker_down = True
        self._broker_downs += 1

        def mend() -> None:
            self._broker_downs -= 1
            if not self._broker_downs:
                self._network.is_broker_down = False
                self._broker.groups.restart()
                self._network.go_on()

        self._mend(fault, mend)

    def _database_down(self, fault: Fault) -> None:
        self._database.stop()
        self._database_downs += 1

        def mend() -> None:
            self._database_downs -= 1
            if not self._database_downs:
                self._database.start()

        self._mend(fault, mend)

    def _cut_broker(self, fault: Fault) -> None:
        self._network.cut(fault.target, mute=fault.kind == "cut-broker", deaf=True)
        self._mend(fault, lambda: self._network.heal(fault.target))

    def _cut_database(self, fault: Fault) -> None:
        self._database.cut(fault.target)
        self._mend(fault, lambda: self._database.heal(fault.target))

    def _step_clock(self, fault: Fault) -> None:
        offset = round((2 * fault.detail - 1) * MOST_AHEAD_SECONDS, 3)
        self._workers.offsets[fault.target] = offset
        self._workers.lives[fault.target].process.clock_offset = offset

    def _lose_leader(self, fault: Fault) -> None:
        topic = LED[int(fault.detail * len(LED))]
        logs = self._broker.topics[topic.name]
        self._hold(topic, int(fault.detail * 1e6) % len(logs), fault.seconds)

    def _overtake(self, fault: Fault) -> None:
        """Let a member have a batch of outcomes at hand that cannot be committed, and its successor
        read the other topics first."""
        for group in self._broker.groups.all():
            member = group.members.get(f"{group.name}-{fault.target}")
            if member is None or not member.partitions:
                continue
            place = member.partitions[int(fault.detail * len(member.partitions))]
            self._hold(PAGE_SIGNALS, place, HELD_SECONDS + 0.7)
            self._later(HELD_SECONDS, lambda: self._database.cut(fault.target))
            self._later(
                HELD_SECONDS + 0.25,
                lambda place=place: self._hold(CRAWL_OUTCOMES, place, 4.0),  # type: ignore[misc]
            )
            self._later(
                HELD_SECONDS + 0.3,
                lambda group=group, member=member: self._broker.groups.leave(  # type: ignore[misc]
                    group, member.instance, "is taken out"
                ),
            )
            self._later(HELD_SECONDS + 3.0, lambda: self._database.heal(fault.target))

    def _hold(self, topic: Topic, number: int, seconds: float) -> None:
        log = self._broker.partition(topic.name, number)
        log.unreadable_until = max(log.unreadable_until, self._loop.now + seconds)

    def _set_budget(self, fault: Fault) -> None:
        self._world.set_budget(round(1.5 + 4 * fault.detail, 2))
