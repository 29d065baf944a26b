"""A partition that no broker leads keeps nobody waiting but who needs it.

The reader is real; the broker and its client are the simulator's.
"""

import asyncio

import pytest
from simulated_reading import SimulatedReading

import shared.runtime.consumer
from services.verify.simulation.kafka.broker import Given
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS, PAGE_SIGNALS
from shared.runtime.consumer import BatchConsumer
from shared.runtime.leftovers import PAUSE_SECONDS
from shared.runtime.settings import Settings

TOPICS = (CRAWL_OUTCOMES, PAGE_SIGNALS)
RECORDS = 5
AWAY_SECONDS = 60.0
SOON_SECONDS = 8.0


class Counting:
    """Counts what is handled of each partition."""

    def __init__(self):
        self.loaded = []
        self.handled = {0: 0, 1: 0}
        self.behind = {}

    async def assigned(self, partitions):
        self.loaded.append(set(partitions))
        return {(topic.name, number): 0 for topic in TOPICS for number in partitions}

    async def revoked(self, _partitions):
        pass

    async def unread(self, ends):
        self.behind |= ends

    async def handle(self, batch):
        for partitions in batch.values():
            for number, records in partitions.items():
                self.handled[number] += len(records)


def reading_of(simulated, handler):
    """A reader, and how long (virtual seconds) it reads for."""
    reader = BatchConsumer(
        *(Settings(partitions=2), "group", TOPICS, handler),
        unread=handler.unread,
        loads_beside=True,
        written=(CRAWL_REQUESTS,),
    )

    async def read(*steps):
        stopping = asyncio.Event()
        await reader.start()
        reading = asyncio.ensure_future(reader.run(stopping))
        for step in steps:
            await step(reader)
        stopping.set()
        await reading
        await reader.stop()

    return lambda *steps: simulated.run(read(*steps))


@pytest.mark.parametrize("topic", [CRAWL_OUTCOMES, CRAWL_REQUESTS])
@pytest.mark.parametrize("seed", range(3))
def test_a_shard_without_a_leader_is_waited_for_and_the_others_go_on(monkeypatch, seed, topic):
    simulated = SimulatedReading(monkeypatch, shared.runtime.consumer, seed, partitions=2)
    handler = Counting()
    for number in (0, 1):
        records = [Given(b"host", b"{}", 0)] * RECORDS
        simulated.broker.partition(CRAWL_OUTCOMES.name, number).append(records, 0.0)
    begins = simulated.loop.now
    simulated.broker.partition(topic.name, 1).hold(begins, begins + AWAY_SECONDS)

    async def soon(reader):
        await asyncio.sleep(SOON_SECONDS)
        assert reader.settled
        assert reader.partitions == {0}
        assert handler.handled == {0: RECORDS, 1: 0}
        assert handler.behind.keys() == {(CRAWL_OUTCOMES.name, 0)}
        assert f"{topic.name} [1]" in reader.trouble

    async def when_it_is_back(reader):
        await asyncio.sleep(AWAY_SECONDS - SOON_SECONDS + PAUSE_SECONDS + SOON_SECONDS)
        assert reader.settled
        assert reader.partitions == {0, 1}
        assert handler.handled == {0: RECORDS, 1: RECORDS}
        assert reader.trouble is None

    reading_of(simulated, handler)(soon, when_it_is_back)
    assert handler.loaded == [{0}, {1}]


def test_a_shard_that_loses_its_leader_before_a_decision_is_let_go(monkeypatch):
    simulated = SimulatedReading(monkeypatch, shared.runtime.consumer, 7, partitions=2)
    handler = Counting()

    async def lose_it(reader):
        await asyncio.sleep(SOON_SECONDS)
        assert reader.partitions == {0, 1}
        now = simulated.loop.now
        simulated.broker.partition(PAGE_SIGNALS.name, 0).hold(now, now + AWAY_SECONDS)
        for group in simulated.broker.groups.all():
            simulated.broker.groups.rebalance(group, "a test wants it")
        await asyncio.sleep(SOON_SECONDS)
        assert reader.settled
        assert reader.partitions == {1}

    async def come_back(reader):
        await asyncio.sleep(AWAY_SECONDS + PAUSE_SECONDS)
        assert reader.partitions == {0, 1}

    reading_of(simulated, handler)(lose_it, come_back)
    assert handler.loaded == [{0, 1}, {0}]
