"""An ingester whose topic has a partition that no broker leads, or that it may not ask about.

The reader is real; the broker and its client are the simulator's.
"""

import asyncio
from collections import Counter

import pytest
from aiokafka.errors import LeaderNotAvailableError, TopicAuthorizationFailedError, UnknownError
from simulated_reading import SimulatedReading

import shared.runtime.group_reading
from services.ingester.reading import SignalReader
from services.verify.simulation.kafka.broker import Given
from services.verify.simulation.kafka.consumer import Consumer
from shared.contracts.topics import SIGNALS
from shared.runtime.settings import Settings

RECORDS = 5
AWAY_SECONDS = 60.0
SOON_SECONDS = 8.0
SESSION_SECONDS = 3.0
"""As `SimulatedReading` has it."""


class Ingester:
    """A reader of two partitions with records in each, and what it has handled."""

    def __init__(self, monkeypatch, seed=1):
        self.simulated = SimulatedReading(
            monkeypatch, shared.runtime.group_reading, seed, partitions=2
        )
        self.handled = Counter()
        for number in (0, 1):
            self.write(number)

    def write(self, number):
        log = self.simulated.broker.partition(SIGNALS.name, number)
        log.append([Given(b"host", b"{}", 0)] * RECORDS, 0.0)

    def lose_leader(self, number):
        now = self.simulated.loop.now
        log = self.simulated.broker.partition(SIGNALS.name, number)
        log.hold(now, now + AWAY_SECONDS)

    def share_anew(self):
        for group in self.simulated.broker.groups.all():
            self.simulated.broker.groups.rebalance(group, "a test wants it")

    @property
    def members(self):
        return sum(len(group.members) for group in self.simulated.broker.groups.all())

    async def handle(self, records):
        self.handled.update(record.partition for record in records)

    def read(self, *steps):
        """Let it read while some steps are done, one after the other."""

        async def reading():
            reader, stopping = SignalReader(Settings(partitions=2), self.handle), asyncio.Event()
            await reader.start()
            running = asyncio.ensure_future(reader.run(stopping))
            try:
                for step in steps:
                    await step(reader)
                stopping.set()
                await running
            finally:
                running.cancel()
                await reader.stop()

        self.simulated.run(reading())


@pytest.mark.parametrize("seed", range(3))
def test_a_partition_without_a_leader_is_waited_for_and_the_others_are_read(monkeypatch, seed):
    ingester = Ingester(monkeypatch, seed)
    ingester.lose_leader(1)

    async def soon(reader):
        await asyncio.sleep(SOON_SECONDS)
        assert ingester.handled == {0: RECORDS}
        assert f"{SIGNALS.name} [1]" in reader.trouble
        assert not reader.settled
        assert ingester.members == 1

    async def meanwhile(reader):
        ingester.write(0)
        await asyncio.sleep(SOON_SECONDS)
        assert ingester.handled == {0: 2 * RECORDS}

    async def when_it_is_back(reader):
        await asyncio.sleep(AWAY_SECONDS)
        assert ingester.handled == {0: 2 * RECORDS, 1: RECORDS}
        assert reader.trouble is None
        assert reader.settled

    ingester.read(soon, meanwhile, when_it_is_back)


def test_a_leader_that_is_lost_before_the_group_shares_anew_costs_nobody_a_record(monkeypatch):
    ingester = Ingester(monkeypatch)

    async def lose_it(reader):
        await asyncio.sleep(SOON_SECONDS)
        assert reader.settled
        ingester.lose_leader(0)
        ingester.share_anew()
        for number in (0, 1):
            ingester.write(number)
        await asyncio.sleep(SOON_SECONDS)
        assert ingester.handled == {0: RECORDS, 1: 2 * RECORDS}

    async def share_once_more(reader):
        ingester.share_anew()
        await asyncio.sleep(AWAY_SECONDS + SOON_SECONDS)
        assert reader.settled
        assert ingester.handled == {0: 2 * RECORDS, 1: 2 * RECORDS}

    ingester.read(lose_it, share_once_more)


def test_a_member_whose_questions_get_no_answer_stays_one(monkeypatch):
    ingester = Ingester(monkeypatch)
    answer = Consumer.beginning_offsets
    asked = 0

    async def silent(consumer, partitions):
        nonlocal asked
        asked += 1
        if asked < 3:
            await asyncio.sleep(AWAY_SECONDS)
        return await answer(consumer, partitions)

    monkeypatch.setattr(Consumer, "beginning_offsets", silent)

    async def wait(reader):
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert ingester.members == 1
        assert not reader.settled
        await asyncio.sleep(2 * SOON_SECONDS)
        assert reader.settled
        assert ingester.handled == {0: RECORDS, 1: RECORDS}

    ingester.read(wait)


@pytest.mark.parametrize("refusal", [UnknownError, TopicAuthorizationFailedError])
def test_a_refusal_ends_the_worker_which_somebody_starts_again(monkeypatch, refusal):
    ingester = Ingester(monkeypatch)

    async def refused(_consumer, _partitions):
        raise refusal(SIGNALS.name)

    monkeypatch.setattr(Consumer, "beginning_offsets", refused)

    async def wait(_reader):
        await asyncio.sleep(SOON_SECONDS)

    with pytest.raises(refusal):
        ingester.read(wait)


def test_what_may_pass_is_tried_again(monkeypatch):
    ingester = Ingester(monkeypatch)
    answer = Consumer.beginning_offsets
    errors = [LeaderNotAvailableError(), LeaderNotAvailableError()]

    async def refused_at_first(consumer, partitions):
        if errors:
            raise errors.pop()
        return await answer(consumer, partitions)

    monkeypatch.setattr(Consumer, "beginning_offsets", refused_at_first)

    async def wait(reader):
        await asyncio.sleep(SOON_SECONDS)
        assert reader.settled
        assert ingester.handled == {0: RECORDS, 1: RECORDS}

    ingester.read(wait)
