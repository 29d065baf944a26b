"""A reader that is real, on a broker and a client that are the simulator's."""

from random import Random

from services.verify.simulation.clocks import virtual_clocks
from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.kafka.consumer import Consumer
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.kafka.questions import leaderless, topic_ids
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import Scale, SimulationPlan, Weather
from services.verify.simulation.process import Process

A_FEW_AT_A_TIME = Weather(0.0, 0.0, 0.0, partly=1.0, uneven=0.0)


class SimulatedReading:
    """Topics, and a member of a group that reads a few records at a time."""

    def __init__(self, monkeypatch, module, seed, partitions=1):
        """Have the readers of a module read here."""
        self.loop = VirtualLoop(Random(seed))
        self.broker = Broker(self.loop, partitions, frozenset())
        self._network = Network(self.loop, Random(seed + 1), 0.0)
        self._seed = seed
        monkeypatch.setattr(module, "make_consumer", self._consumer)
        monkeypatch.setattr("shared.runtime.continuity.topic_ids", topic_ids)
        monkeypatch.setattr("shared.runtime.leaders.leaderless", leaderless)

    def _consumer(self, _settings, group=None, **options):
        known = {
            "group_id": group,
            "group_instance_id": "one",
            "session_timeout_ms": 3000,
            "heartbeat_interval_ms": 300,
        }
        plan = SimulationPlan(self._seed, Scale(), (), A_FEW_AT_A_TIME)
        rng = Random(self._seed + 2)
        return Consumer(self.loop, self.broker, self._network, rng, known | options, plan)

    def run(self, reading):
        """Run a coroutine in virtual time."""
        try:
            with virtual_clocks(self.loop):
                task = self.loop.create_task(reading, context=Process("reader").context())
                self.loop.run_until_complete(task)
        finally:
            self.loop.end()
