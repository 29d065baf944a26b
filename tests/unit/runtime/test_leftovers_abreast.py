"""What is handed over again is read in the order of its times, as it was the first time.

The reader is real; the broker and its client are the simulator's.
"""

import asyncio
from random import Random

import pytest

import shared.runtime.consumer
from services.verify.simulation.clocks import BEGINNING, virtual_clocks
from services.verify.simulation.kafka.broker import Broker, Given
from services.verify.simulation.kafka.consumer import Consumer, topic_ids
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import Scale, SimulationPlan, Weather
from services.verify.simulation.process import Process
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS
from shared.runtime.abreast import SLACK_SECONDS, Abreast
from shared.runtime.consumer import BatchConsumer
from shared.runtime.settings import Settings

HOUR = 3_600.0
RECORDS = 40
TOPICS = (CRAWL_OUTCOMES, PAGE_SIGNALS)
A_FEW_AT_A_TIME = Weather(0.0, 0.0, 0.0, partly=1.0, uneven=0.0)


class Reluctant:
    """Cannot do every other batch."""

    def __init__(self):
        self.left = {
            topic.name: [BEGINNING - HOUR + 10.0 * n + shift for n in range(RECORDS)]
            for topic, shift in zip(TOPICS, (0.0, 5.0), strict=True)
        }
        """Times that are not handled yet."""
        self._batches = 0

    async def assigned(self, _partitions):
        return {(topic.name, 0): 0 for topic in TOPICS}

    async def revoked(self, _partitions):
        pass

    async def handle(self, batch):
        self._batches += 1
        if self._batches % 2:
            return {0}
        handled = []
        for topic, partitions in batch.items():
            times = [record.timestamp / 1e3 for record in partitions[0]]
            assert times == self.left[topic][: len(times)]
            del self.left[topic][: len(times)]
            handled += times
        waiting = [times[0] for times in self.left.values() if times]
        assert max(handled) <= min(waiting, default=max(handled)) + SLACK_SECONDS
        return set()


@pytest.mark.parametrize("seed", range(5))
def test_what_is_left_is_read_abreast_again(monkeypatch, seed):
    loop = VirtualLoop(Random(seed))
    broker, network = Broker(loop, 1, frozenset()), Network(loop, Random(seed), 0.0)
    plan = SimulationPlan(seed, Scale(), (), A_FEW_AT_A_TIME)
    handler = Reluctant()
    for topic, times in handler.left.items():
        given = [Given(b"host", b"{}", round(1e3 * at)) for at in times]
        broker.partition(topic, 0).append(given, 0.0)

    def consumer(_settings, group=None, **options):
        known = {
            "group_id": group,
            "group_instance_id": "one",
            "session_timeout_ms": 3000,
            "heartbeat_interval_ms": 300,
        }
        return Consumer(loop, broker, network, Random(seed), known | options, plan)

    monkeypatch.setattr(shared.runtime.consumer, "make_consumer", consumer)
    monkeypatch.setattr("shared.runtime.continuity.topic_ids", topic_ids)

    async def read():
        settings, stopping = Settings(partitions=1), asyncio.Event()
        abreast = Abreast.of_crawls(settings)
        reader = BatchConsumer(settings, "group", TOPICS, handler, holding=(abreast,))
        await reader.start()
        reading = asyncio.ensure_future(reader.run(stopping))
        async with asyncio.timeout(HOUR):
            while any(handler.left.values()) and not reading.done():
                await asyncio.sleep(1)
        stopping.set()
        await reading
        await reader.stop()

    with virtual_clocks(loop):
        loop.run_until_complete(loop.create_task(read(), context=Process("reader").context()))
    loop.end()
    assert not any(handler.left.values())
