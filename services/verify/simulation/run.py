"""One simulation from its plan to its result."""

import asyncio
import contextlib
import gc
import os
import random
import secrets
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NoReturn

import structlog

import services.coordinator.picture
import services.estimator.handler
import services.scheduler.flow.reporting
import shared.runtime.consumer
import shared.runtime.follower
import shared.runtime.kafka
import shared.runtime.partition_watch
import shared.runtime.telling
import shared.store.splitting
from services.verify.checks.finding import Finding
from services.verify.simulation.blocking import sleep
from services.verify.simulation.checks import check
from services.verify.simulation.clocks import virtual_clocks
from services.verify.simulation.facts import GAP, Facts, Gap
from services.verify.simulation.faults import Injector
from services.verify.simulation.growing import Ground, Growing
from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.kafka.consumer import Consumer
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.kafka.producer import Producer
from services.verify.simulation.kafka.questions import end_of_log, leaderless, topic_ids
from services.verify.simulation.loads import Loads, every_load_looked_at
from services.verify.simulation.looking import Looks, every_pick_looked_at
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.operators import Operators
from services.verify.simulation.plan import SimulationPlan
from services.verify.simulation.process import OUTSIDE, Killed, Process, current
from services.verify.simulation.replacing import in_turn, replaced
from services.verify.simulation.store.database import Database
from services.verify.simulation.store.postgres import Postgres
from services.verify.simulation.store.replacements import nothing, replacements
from services.verify.simulation.workers import Workers
from services.verify.simulation.world import World
from shared.contracts.layout import Layout
from shared.contracts.topics import TOPICS

_SINGLE: Final = frozenset(topic.name for topic in TOPICS if topic.partitioning == "single")

_CHANGED: Final[dict[tuple[Any, str], Any]] = {
    (shared.runtime.follower, "ASK_SECONDS"): 0.25,
    (shared.runtime.telling, "PASSED_OVER_SECONDS"): 1.0,
    (shared.runtime.partition_watch, "LOOK_SECONDS"): 2.5,
    (shared.store.splitting, "ASKED_SECONDS"): 3.0,
    (services.scheduler.flow.reporting, "_POLL_SECONDS"): 1.0,
    (services.coordinator.picture.Picture, "sample"): nothing,
}
"""Loops that mostly find nothing to do turn more slowly, and nobody looks at pictures: turns are
what a simulation costs. What waits for long in production waits less."""

_IN_PARTS: Final[dict[tuple[Any, str], Any]] = {
    (services.estimator.handler.EstimatorHandler, "least_part"): 2,
}
"""With every third seed estimators store small batches in parts, too. Not with all: some faults, as
a fence that is left out, show more seldom where little is stored at once."""

Mutate = Callable[[], contextlib.AbstractContextManager[Any]]
"""Plants a fault into the workers while a simulation runs."""


@dataclass(slots=True)
class Result:
    """What came of a simulation."""

    plan: SimulationPlan
    findings: list[Finding]
    fingerprint: str
    """Of everything that happened in it, in order."""
    story: list[tuple[float, str, str]] = field(default_factory=list)
    """What happened: when (virtual seconds), to whom, what."""
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every promise was kept."""
        return all(finding.passed for finding in self.findings)

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(finding.check for finding in self.findings if not finding.passed)


class _Simulation:
    """All parts of one run."""

    def __init__(self, plan: SimulationPlan, postgres: Postgres | None) -> None:
        self.plan = plan
        self.postgres = postgres
        scale = plan.scale

        def stream(name: str) -> Random:
            return Random(f"{name} {plan.seed}")  # noqa: S311 - a simulation

        self.loop = VirtualLoop(stream("turns"))
        self.broker = Broker(self.loop, scale.partitions, _SINGLE)
        self.network = Network(self.loop, stream("network"), plan.weather.slow_messages)
        self.database = Database(self.loop, stream("database"), plan.weather.slow_commits)
        self.database.layout = Layout.of(scale.partitions)
        self.workers = Workers(self.loop, plan, self.network, self.database, stream("workers"))
        self.world = World(self.loop, self.broker, scale, stream("world"), plan.seed)
        self.story: list[tuple[float, str, str]] = []
        self.gaps: set[Gap] = set()
        self._rng = stream("clients")
        self._names = stream("names")
        self._threads = stream("threads").random
        self.loop.thread_seconds = self._thread_seconds
        self.loop.died = self.workers.died
        self.database.kill = self._kill
        self.database.committed = lambda process: self._note(process.name, "commits")
        self.broker.groups.changed = self._note
        self.workers.said = self._note

    def _kill(self, process: Process) -> None:
        self.workers.died(process)

    def _thread_seconds(self) -> float:
        draw = self._threads()
        is_slow = draw < self.plan.weather.slow_threads
        return 0.3 * self._threads() if is_slow else 0.0002 + 0.002 * draw

    def _note(self, who: str, what: str) -> None:
        self.story.append((self.loop.now, who, what))
        self.loop.note(zlib.crc32(f"{who} {what}".encode()))

    def drawn_names(self) -> dict[tuple[Any, str], Any]:
        """In the place of what workers make names for themselves of."""
        names = self._names
        return {
            (os, "getpid"): lambda: current().number,
            (secrets, "token_hex"): lambda count: names.randbytes(count).hex(),
            (time, "sleep"): sleep,
            (uuid, "uuid4"): lambda: uuid.UUID(int=names.getrandbits(128), version=4),
        }

    def consumer(self, **options: Any) -> Consumer:
        """In the place of `AIOKafkaConsumer`."""
        return Consumer(self.loop, self.broker, self.network, self._rng, options, self.plan)

    def producer(self, **options: Any) -> Producer:
        """In the place of `AIOKafkaProducer`."""
        is_idempotent = bool(options["enable_idempotence"])
        return Producer(self.loop, self.broker, self.network, enable_idempotence=is_idempotent)

    def end_now(self, reason: str, **_more: float) -> None:
        """In the place of the end of a process."""
        process = current()
        self._note(process.name, f"ends itself: {reason}")
        self.workers.died(process)
        raise Killed

    async def run(self) -> Facts:
        """Let everything happen."""
        self.world.start(lambda: self.network.is_broker_down)
        for name in self.plan.scale.processes():
            self.workers.start(name)
        operators = Operators(
            self.loop,
            self.broker,
            self.network,
            self.database,
            self.workers,
            self.world,
            self._note,
        )
        ground = Ground(self.loop, self.broker, self.network, self.database, self.world, self._note)
        self.growing = Growing(ground)
        injector = Injector(
            self.loop,
            self.broker,
            self.network,
            self.database,
            self.workers,
            self.world,
            operators,
            self.growing,
            self._note,
        )
        injector.start(self.plan)
        await asyncio.sleep(self.plan.scale.seconds)
        self.world.rest()
        await asyncio.sleep(self.plan.scale.rest_seconds)
        await self.growing.over()
        self.database.start()  # a fault may outlast a short run: the checks read what is there
        facts = await Facts.gather(
            self.plan,
            self.loop,
            self.broker,
            self.database,
            self.workers,
            self.world.truth,
            frozenset(self.gaps),
        )
        self.workers.close()
        self.growing.close()
        if self.postgres is not None:
            self.postgres.compare(self.database)
            facts.differences = self.postgres.differences
        return facts

    def capture(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        """Keep what a worker logs."""
        more = {k: v for k, v in event.items() if k not in ("event", "exc_info")}
        text = f"{event['event']} {more or ''}".strip()[:300]
        self._note(current().name, f"{level}: {text}")
        if event["event"] == GAP:
            offsets = range(event["first_offset"], event["last_offset"] + 1)
            reader = current().name.split("-")[0]
            self.gaps |= {Gap(reader, event["topic"], event["partition"], o) for o in offsets}
        raise structlog.DropEvent


@contextlib.contextmanager
def _surroundings(simulation: _Simulation) -> Iterator[None]:
    """Everything that the workers meet, in the place of the real thing."""
    random_state = random.getstate()
    log_config = structlog.get_config()
    random.seed(simulation.plan.seed)
    store = replacements if simulation.postgres is None else simulation.postgres.replacements
    functions = store(simulation.database) | {
        "shared.runtime.worker.end_now": simulation.end_now,
        "shared.runtime.topic_metadata.leaderless": leaderless,
        "shared.runtime.topic_metadata.topic_ids": topic_ids,
        "shared.runtime.log_ends.end_of_log": end_of_log,
        "services.scheduler.warm_up.warm_up": nothing,
        "services.estimator.compilation.warm_up": nothing,
        "shared.runtime.aiokafka_patches.read_ahead": nothing,
        "shared.runtime.ahead.ahead": in_turn,
        # What is compiled when depends on what this process has simulated before.
        "shared.runtime.late_kernels.watch_kernels": lambda _late, stopping: stopping.wait(),
    }
    kafka: Any = shared.runtime.kafka
    clients = kafka.AIOKafkaConsumer, kafka.AIOKafkaProducer
    structlog.configure(
        processors=[simulation.capture],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )
    changed: dict[tuple[Any, str], Any] = _CHANGED | simulation.drawn_names()
    if simulation.plan.seed % 3 == 0:
        changed |= _IN_PARTS
    before = {place: getattr(*place) for place in changed}
    for place, value in changed.items():
        setattr(*place, value)
    kafka.AIOKafkaConsumer, kafka.AIOKafkaProducer = simulation.consumer, simulation.producer
    try:
        with replaced(functions), virtual_clocks(simulation.loop):
            yield
    finally:
        for place, value in before.items():
            setattr(*place, value)
        kafka.AIOKafkaConsumer, kafka.AIOKafkaProducer = clients
        structlog.configure(**log_config)
        random.setstate(random_state)


def simulate(
    plan: SimulationPlan,
    mutate: Mutate = contextlib.nullcontext,
    database_url: str | None = None,
) -> Result:
    """Run a plan, and check what came of it.

    Args:
        plan: of the simulation.
        mutate: plants a fault into the workers, to see it caught.
        database_url: of a PostgreSQL that runs in step with the model; None: the model is alone.
    """
    with _tidied_up():
        postgres = None if database_url is None else Postgres(database_url)
        return _run(_Simulation(plan, postgres), mutate)


@contextlib.contextmanager
def _tidied_up() -> Iterator[None]:
    """Leave nothing behind: what a simulation leaves refers to itself, and is found by chance.

    Looking for it is cheap, as all that was there before is left alone.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if was_collecting:
            gc.enable()


def _run(simulation: _Simulation, mutate: Mutate) -> Result:
    looks, loads = Looks(), Loads()
    loop, seen = simulation.loop, every_load_looked_at(loads, simulation.broker)
    with _surroundings(simulation), mutate(), every_pick_looked_at(looks), seen:
        try:
            facts = loop.run_until_complete(
                loop.create_task(simulation.run(), context=OUTSIDE.context())
            )
        finally:
            loop.end()
    facts.looks, facts.loads = looks, loads
    return Result(
        simulation.plan,
        check(facts),
        f"{loop.fingerprint:016x}",
        simulation.story,
        {
            "turns": loop.turns,
            "commits": simulation.database.commits.count,
            "requests": len(simulation.broker.records("crawl-requests")),
            "outcomes": len(simulation.broker.records("crawl-outcomes")),
        },
    )
