"""What is handed over again is read in the order of its times, as it was the first time.

The reader is real; the broker and its client are the simulator's.
"""

import asyncio

import pytest
from simulated_reading import SimulatedReading

import shared.runtime.consumer
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.kafka.broker import Given
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS
from shared.runtime.abreast import SLACK_SECONDS, Abreast
from shared.runtime.consumer import BatchConsumer
from shared.runtime.settings import Settings

HOUR = 3_600.0
RECORDS = 40
TOPICS = (CRAWL_OUTCOMES, PAGE_SIGNALS)


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
    simulated = SimulatedReading(monkeypatch, shared.runtime.consumer, seed)
    handler = Reluctant()
    for topic, times in handler.left.items():
        given = [Given(b"host", b"{}", round(1e3 * at)) for at in times]
        simulated.broker.partition(topic, 0).append(given, 0.0)

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

    simulated.run(read())
    assert not any(handler.left.values())
