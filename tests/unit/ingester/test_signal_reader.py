"""Where the ingester begins to read: never before what it has done already."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, NotCoordinatorForGroupError

from services.ingester.reading import SignalReader
from shared.runtime import group_reading, leaders
from shared.runtime.group_reading import QUESTIONS
from shared.runtime.settings import load_settings

HERE, THERE = TopicPartition("signals", 0), TopicPartition("signals", 1)

TURNS = 1_000
"""Of the loop; far more than any question here takes."""


class Consumer:
    """What a broker answers, one question after the other, and its last answer for ever; an
    exception is raised."""

    _client = None

    def __init__(self, here, there):
        self.answers = {HERE: list(here), THERE: list(there)}
        self.sought = {}
        self.paused = set()
        self.records = {}
        self.committed_now = []

    async def committed(self, tp):
        answers = self.answers[tp]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, type):
            raise answer
        return answer

    async def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, 3)

    async def commit(self, offsets):
        self.committed_now.append(offsets)

    def assignment(self):
        return {HERE, THERE}

    def pause(self, *partitions):
        self.paused |= set(partitions)

    def resume(self, *partitions):
        self.paused -= set(partitions)

    def seek(self, tp, offset):
        self.sought[tp] = offset

    async def getmany(self, *partitions, **_):
        await asyncio.sleep(0)
        if partitions:
            return {}  # to whom stays a member
        records, self.records = self.records, {}
        return records

    async def position(self, tp):
        return self.sought[tp]


@pytest.fixture
def reader(monkeypatch):
    async def none_lack(_client, _names):
        return {}

    monkeypatch.setattr(group_reading, "make_consumer", lambda *_, **__: None)
    monkeypatch.setattr(group_reading, "QUESTION_SECONDS", 0.0)
    monkeypatch.setattr(group_reading, "SOON_SECONDS", 0.0)
    monkeypatch.setattr(leaders, "leaderless", none_lack)
    monkeypatch.setattr(leaders, "client_of", lambda _consumer: None)
    return SignalReader(load_settings(), lambda records: None)


def give(reader, consumer):
    for part in (reader, reader._continuity, reader._polling, reader._lag, reader._leaders):
        part._consumer = consumer


async def assigned(reader, here, there):
    consumer = Consumer(here, there)
    give(reader, consumer)
    await reader.on_partitions_assigned([HERE, THERE])
    assert consumer.paused == {HERE, THERE}

    stopping = asyncio.Event()
    running = asyncio.ensure_future(reader.run(stopping))
    for _ in range(TURNS):
        await asyncio.sleep(0.001)
        if reader.settled or running.done():
            break
    stopping.set()
    await running
    return consumer


async def begins(reader, here, there):
    consumer = await assigned(reader, here, there)
    assert reader.settled
    assert not consumer.paused
    return consumer.sought


async def test_it_goes_on_from_what_was_committed(reader):
    assert await begins(reader, here=[70], there=[80]) == {HERE: 70, THERE: 80}


async def test_a_new_group_begins_where_the_topic_does(reader):
    assert await begins(reader, here=[None], there=[None]) == {HERE: 3, THERE: 3}


@pytest.mark.parametrize("answer", [None, NotCoordinatorForGroupError])
async def test_a_broker_that_forgets_for_a_moment_is_asked_again(reader, answer):
    assert await begins(reader, here=[answer, 70], there=[80]) == {HERE: 70, THERE: 80}


@pytest.mark.parametrize("answer", [TimeoutError, NotCoordinatorForGroupError])
async def test_a_broker_that_cannot_be_asked_has_not_said_nothing(reader, answer):
    answers = [answer] * (3 * QUESTIONS)
    assert await begins(reader, here=[*answers, 70], there=[80]) == {HERE: 70, THERE: 80}


async def test_a_broker_that_refuses_to_say_ends_it(reader):
    with pytest.raises(GroupAuthorizationFailedError):
        await assigned(reader, here=[GroupAuthorizationFailedError], there=[80])
    assert not reader.settled


async def test_a_broker_that_forgets_does_not_make_it_read_everything_again(reader):
    give(reader, Consumer(here=[None], there=[None]))
    await reader._commit({HERE: 50})
    await reader.on_partitions_revoked([HERE, THERE])

    assert await begins(reader, here=[None], there=[5]) == {HERE: 50, THERE: 5}


async def test_a_batch_at_hand_is_committed_before_its_partitions_go_to_another(reader):
    """Else whoever reads them next does it once more."""
    begun, may_end, stopping = (asyncio.Event() for _ in range(3))

    async def handle(_records):
        begun.set()
        await may_end.wait()

    reader._handle = handle
    consumer = Consumer(here=[70], there=[80])
    consumer.records = {HERE: [SimpleNamespace(offset=70, value=b"")]}
    give(reader, consumer)
    await reader.on_partitions_assigned([HERE, THERE])
    running = asyncio.ensure_future(reader.run(stopping))
    async with asyncio.timeout(30):
        await begun.wait()
        revoking = asyncio.ensure_future(reader.on_partitions_revoked([HERE, THERE]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not revoking.done()
        may_end.set()
        await revoking
        assert consumer.committed_now == [{HERE: 71}]
        stopping.set()
        await running
