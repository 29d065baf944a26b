"""What is known when a simulation ends."""

from dataclasses import dataclass, field
from typing import Any

from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import SimulationPlan
from services.verify.simulation.store.database import Database
from services.verify.simulation.workers import Workers
from services.verify.simulation.world import Truth


@dataclass(slots=True)
class Facts:
    """Topics, tables, truth, and what the workers have in memory."""

    plan: SimulationPlan
    broker: Broker
    database: Database
    truth: Truth
    ended_at: float
    """Virtual seconds."""
    shards: dict[int, list[Any]] = field(default_factory=dict)
    """Number → the shards that schedulers have in memory."""
    not_ready: dict[str, str] = field(default_factory=dict)
    """Worker → why it says that it is not ready."""

    @classmethod
    async def gather(
        cls,
        plan: SimulationPlan,
        loop: VirtualLoop,
        broker: Broker,
        database: Database,
        workers: Workers,
        truth: Truth,
    ) -> "Facts":
        """Look at everything."""
        facts = cls(plan, broker, database, truth, loop.now)
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
