"""What is known when a simulation ends."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka import ConsumerRecord

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.loads import Loads
from services.verify.simulation.looking import Looks
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import SimulationPlan
from services.verify.simulation.store.database import Database
from services.verify.simulation.truth import Truth
from services.verify.simulation.workers import Workers

GAP: Final = "records are gone that were never read"
"""What a worker logs of it."""


class Gap(NamedTuple):
    """A record of which a worker has said that it is gone."""

    reader: str
    """Kind of worker."""
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Facts:
    """Topics, tables, truth, and what the workers have in memory."""

    plan: SimulationPlan
    broker: Broker
    database: Database
    truth: Truth
    gaps: frozenset[Gap]
    ended_at: float
    """Virtual seconds."""
    shards: dict[int, list[Any]] = field(default_factory=dict)
    """Number → the shards that schedulers have in memory."""
    not_ready: dict[str, str] = field(default_factory=dict)
    """Worker → why it says that it is not ready."""
    looks: Looks = field(default_factory=Looks)
    """What was picked, beside a look at every page."""
    loads: Loads = field(default_factory=Loads)
    """What was in flight in shards that were loaded."""
    overtaken: set[str] = field(default_factory=set)
    """URLs of pages of which messages came late: as they were passed on (`passed_on`), or as
    crawlers' clocks are behind (`counting.late_crawls`)."""
    differences: list[str] | None = None
    """What PostgreSQL and its model did not agree on; None: the model was alone."""

    @classmethod
    async def gather(
        cls,
        plan: SimulationPlan,
        loop: VirtualLoop,
        broker: Broker,
        database: Database,
        workers: Workers,
        truth: Truth,
        gaps: frozenset[Gap],
    ) -> "Facts":
        """Look at everything."""
        facts = cls(plan, broker, database, truth, gaps, loop.now)
        for name in plan.scale.processes():
            service = workers.service(name)
            if service is None:
                facts.not_ready[name] = "it is not running"
                continue
            reason = service.not_ready()
            if reason:
                facts.not_ready[name] = reason
            if name.startswith("scheduler"):
                for number, shard in service._handler.shards.items():  # noqa: SLF001
                    facts.shards.setdefault(number, []).append(shard)
        return facts

    def passed_over(self, reader: str) -> list[ConsumerRecord]:
        """Good records of which all workers of a kind have said that they are gone."""
        gone = {gap[1:] for gap in self.gaps if gap.reader == reader}
        return [
            record
            for logs in self.broker.topics.values()
            for log in logs
            for record, _ in log.removed
            if (place := (record.topic, record.partition, record.offset)) in gone
            and place not in self.truth.bad
        ]

    def unsure(self) -> set[str]:
        """URLs of which something may have been applied, or not."""
        gone = {url_of(record) or "" for record in self.passed_over("estimator")}
        return self.truth.unsure | gone | self.overtaken

    def split_since(self, at: float) -> set[int]:
        """Shards whose pages were another's, or picked by nobody, at some time since; virtual
        seconds."""
        layout, splits = self.database.layout, self.database.splits
        late = {
            parent
            for parent, row in splits.items()
            if row["split_at"] is None or row["split_at"] - BEGINNING >= at
        }
        return {shard for parent in late for shard in layout.family_of(parent)}

    def unread(self, topic: str) -> set[str]:
        """URLs of which records of a topic are gone that an estimator or a scheduler never read."""
        gone = self.passed_over("estimator") + self.passed_over("scheduler")
        return {url_of(record) or "" for record in gone if record.topic == topic}

    def places_about(self, urls: set[str]) -> set[tuple[str, int, int]]:
        """Topic, partition and offset of good records about some pages."""
        return {
            place
            for logs in self.broker.topics.values()
            for log in logs
            for record, _ in log.history()
            if (place := (record.topic, record.partition, record.offset)) not in self.truth.bad
            and urls
            and url_of(record) in urls
        }


def url_of(record: ConsumerRecord) -> str | None:
    """The URL that a record is about, if it is about one."""
    try:
        found: str | None = msgspec.json.decode(record.value).get("url")
    except (msgspec.DecodeError, AttributeError):
        return None
    return found
