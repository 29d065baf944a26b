"""Where the ingester begins to read: never before what it has done already."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NotCoordinatorForGroupError

from services.ingester.reading import SignalReader
from shared.runtime import group_reading
from shared.runtime.group_reading import QUESTIONS
from shared.runtime.settings import load_settings

HERE, THERE = TopicPartition("signals", 0), TopicPartition("signals", 1)


class Consumer:
    """What a broker answers, one question after the other; an exception is raised."""

    def __init__(self, **answers):
        self.answers = {HERE: list(answers["here"]), THERE: list(answers["there"])}
        self.sought = {}

    async def committed(self, tp):
        answer = self.answers[tp].pop(0)
        if isinstance(answer, type):
            raise answer
        return answer

    async def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, 3)

    async def commit(self, offsets):
        pass

    def pause(self, *partitions):
        self.paused = set(partitions)

    def resume(self, *partitions):
        self.paused -= set(partitions)

    def seek(self, tp, offset):
        self.sought[tp] = offset


@pytest.fixture
def reader(monkeypatch):
    monkeypatch.setattr(group_reading, "make_consumer", lambda *_, **__: None)
    monkeypatch.setattr(group_reading, "QUESTION_SECONDS", 0.0)
    return SignalReader(load_settings(), lambda records: None)


async def assigned(reader, **answers):
    reader._consumer = reader._continuity._consumer = consumer = Consumer(**answers)
    await reader.on_partitions_assigned([HERE, THERE])
    assert reader.settled
    assert not consumer.paused
    return consumer.sought


async def test_it_goes_on_from_what_was_committed(reader):
    assert await assigned(reader, here=[70], there=[80]) == {HERE: 70, THERE: 80}


async def test_a_new_group_begins_where_the_topic_does(reader):
    nothing = [None] * QUESTIONS
    assert await assigned(reader, here=nothing, there=nothing) == {HERE: 3, THERE: 3}


@pytest.mark.parametrize("answer", [None, NotCoordinatorForGroupError])
async def test_a_broker_that_forgets_for_a_moment_is_asked_again(reader, answer):
    found = await assigned(reader, here=[answer, 70], there=[80])
    assert found == {HERE: 70, THERE: 80}


async def test_a_broker_that_forgets_does_not_make_it_read_everything_again(reader):
    reader._consumer = Consumer(here=[], there=[])
    await reader._commit({HERE: 50})
    await reader.on_partitions_revoked([HERE, THERE])

    found = await assigned(reader, here=[None] * QUESTIONS, there=[5])

    assert found == {HERE: 50, THERE: 5}
