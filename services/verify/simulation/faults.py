"""Doing what the plan says goes wrong, and mending it."""

from collections.abc import Callable
from typing import Final

from services.verify.simulation.growing import Growing
from services.verify.simulation.kafka.broker import Broker, Partition
from services.verify.simulation.kafka.groups import Group, Member
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.operators import Operators
from services.verify.simulation.plan import Fault, SimulationPlan
from services.verify.simulation.process import OUTSIDE
from services.verify.simulation.store.database import Database
from services.verify.simulation.truth import Break
from services.verify.simulation.workers import Workers
from services.verify.simulation.world import World
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, SIGNALS, Topic
from shared.store.positions import ESTIMATOR

MOST_AHEAD_SECONDS: Final = 1.5
"""Clocks go wrong by so much, ahead or behind."""

LED: Final = (CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES)
"""Topics of which a partition may lose its leader."""

WRITTEN_BY_PEOPLE: Final = (CRAWL_OUTCOMES, PAGE_UPDATES)
"""Topics that none of the workers writes."""

KEPT_FOR_A_WHILE: Final = (CRAWL_OUTCOMES, PAGE_SIGNALS, SIGNALS)
"""Topics of which old records are deleted unread."""

IMPORT_SECONDS: Final = 0.7
"""Between the steps of an import."""

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
        operators: Operators,
        growing: Growing,
        say: Callable[[str, str], None],
    ) -> None:
        self._loop, self._broker, self._network = loop, broker, network
        self._database, self._workers, self._world = database, workers, world
        self._operators = operators
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
            "transaction": self._open_transaction,
            "retention": self._delete_old,
            "records-lost": self._lose_records,
            "topic-anew": self._make_topic_anew,
            "import": self._import_pages,
            "growth": growing.begin,
            "order": lambda f: self._world.orders.give(f.detail),
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
                lambda group=group, member=member: self._take_out(group, member),  # type: ignore[misc]
            )
            self._later(HELD_SECONDS + 3.0, lambda: self._database.heal(fault.target))
            self._later(HELD_SECONDS + 4.0, lambda: self._network.heal(fault.target))

    def _take_out(self, group: Group, member: Member) -> None:
        """The broker does not hear a member any more, which so cannot join again at once."""
        process = member.instance.removeprefix(f"{group.name}-")
        self._network.cut(process, mute=True, deaf=True)
        self._broker.groups.leave(group, member.instance, "is taken out")

    def _hold(self, topic: Topic, number: int, seconds: float) -> None:
        log = self._broker.partition(topic.name, number)
        log.hold(self._loop.now, self._loop.now + seconds)

    def _open_transaction(self, fault: Fault) -> None:
        topic = WRITTEN_BY_PEOPLE[int(fault.detail * 2)]
        number = int(fault.detail * 1e6) % len(self._broker.topics[topic.name])
        is_committed = int(fault.detail * 1e3) % 2 == 0
        if self._world.begin_transaction(topic, number, is_committed=is_committed):
            log = self._broker.partition(topic.name, number)
            log.held.append((self._loop.now, self._loop.now + fault.seconds))
            self._mend(
                fault,
                lambda: self._world.end_transaction(topic, number, is_committed=is_committed),
            )

    def _delete_old(self, fault: Fault) -> None:
        """Retention deletes while those are away who read for good."""
        topic = KEPT_FOR_A_WHILE[int(fault.detail * len(KEPT_FOR_A_WHILE))]
        logs = self._broker.topics[topic.name]
        log = logs[int(fault.detail * 1e6) % len(logs)]
        self._send_away("ingester" if topic is SIGNALS else "estimator", fault.seconds)
        kept = int(fault.detail * 1e4) % 3

        def delete() -> None:
            # Where nobody has ever noted a position, reading begins with whatever is there.
            if self._is_noted(log):
                log.keep_from(max(log.begin, log.stable - kept))

        self._later(fault.seconds - 0.1, delete)

    def _is_noted(self, log: Partition) -> bool:
        """Whether its reader has ever noted how far it was."""
        groups = self._broker.groups.all()
        in_kafka = any((log.topic, log.number) in group.committed for group in groups)
        return in_kafka or (ESTIMATOR, log.topic, log.number) in self._database.positions

    def _send_away(self, kind: str, seconds: float) -> None:
        for name in sorted(self._workers.lives):
            if name.startswith(kind):
                self._workers.kill(name, seconds)

    def _applied(self, log: Partition) -> int:
        """The offset before which all of a partition is applied for good."""
        return self._database.positions.get((ESTIMATOR, log.topic, log.number), 0)

    def _lose_records(self, fault: Fault) -> None:
        """The leader is another one, that does not have some of what was read already."""
        topic = WRITTEN_BY_PEOPLE[int(fault.detail * 2)]
        logs = [log for log in self._broker.topics[topic.name] if self._applied(log) > log.begin]
        if not logs:
            self._say("fault", "there is nothing to lose")
            return
        log = logs[int(fault.detail * 1e6) % len(logs)]
        applied = self._applied(log)
        first = log.begin + int(fault.detail * 1e3) % (applied - log.begin)
        self._world.note_lost(log, first, applied)
        log.lose_from(first)
        # Else it might soon be as long as it was, and nobody could see that it is another.
        log.takes_nothing = True
        self._operators.settle(Break(topic.name, self._loop.now))

    def _make_topic_anew(self, fault: Fault) -> None:
        topic = LED[int(fault.detail * len(LED))]
        if not any(self._applied(log) for log in self._broker.topics[topic.name]):
            self._say("fault", "nothing was ever read of it")
            return
        for log in self._broker.topics[topic.name]:
            self._world.note_lost(log, log.begin, self._applied(log))
        self._broker.make_anew(topic.name)
        self._operators.settle(Break(topic.name, self._loop.now))

    def _import_pages(self, fault: Fault) -> None:
        """Somebody imports pages while the estimators are stopped, as has to be."""
        self._send_away("estimator", fault.seconds)
        self._later(IMPORT_SECONDS, self._operators.begin_import)
        self._later(2 * IMPORT_SECONDS, self._operators.import_pages)

    def _set_budget(self, fault: Fault) -> None:
        self._world.set_budget(round(1.5 + 4 * fault.detail, 2))
