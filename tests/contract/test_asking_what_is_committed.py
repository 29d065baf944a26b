"""A coordinator that cannot say what a group has committed is not taken to have said: nothing.

From version 2 on, its answer has such an error at the top, and names no partition.
"""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import consumer
from aiokafka.errors import GroupAuthorizationFailedError, UnknownError
from aiokafka.protocol.commit import (
    OffsetFetchResponse_v1,
    OffsetFetchResponse_v2,
    OffsetFetchResponse_v3,
)

from shared.runtime.committed_offsets import believe_no_errors

TP = TopicPartition("signals", 1)

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, NOT_ALLOWED, UNKNOWN = 14, 15, 16, 30, -1

THERE = OffsetFetchResponse_v3(0, [("signals", [(1, 70, "", 0)])], 0)
NOTHING = OffsetFetchResponse_v3(0, [("signals", [(1, -1, "", 0)])], 0)


@pytest.fixture
def coordinator_of():
    """The part of aiokafka that asks, and a broker that answers so and so; it asks no other."""
    believe_no_errors()
    kind = consumer.GroupCoordinator
    made = kind.__new__(kind)

    async def send(_node, _request, *, group):
        return made.answers.pop(0)

    async def look_up():
        if made.coordinator_id is None:
            made.coordinator_id, made._coordinator_dead_fut = 0, asyncio.Future()
            made.found += 1

    made.ensure_coordinator_known = look_up
    made.group_id, made.coordinator_id, made.found = "group", None, 0
    made._retry_backoff_ms = 0
    made._client = SimpleNamespace(send=send)
    made._closing = SimpleNamespace(done=lambda: True)
    made._coordination_task = SimpleNamespace(done=lambda: True)

    def answering(*answers):
        made.answers = list(answers)
        return made

    return answering


def failed(code):
    return OffsetFetchResponse_v3(0, [], code)


@pytest.mark.parametrize(
    ("code", "coordinators"), [(LOADING, 1), (NOT_AVAILABLE, 3), (NOT_COORDINATOR, 3)]
)
async def test_it_is_asked_until_it_can_say(coordinator_of, code, coordinators):
    coordinator = coordinator_of(failed(code), failed(code), THERE)

    found = await coordinator.fetch_committed_offsets([TP])

    assert {tp: known.offset for tp, known in found.items()} == {TP: 70}
    assert coordinator.found == coordinators
    assert not coordinator.answers


@pytest.mark.parametrize(
    ("code", "error"), [(NOT_ALLOWED, GroupAuthorizationFailedError), (UNKNOWN, UnknownError)]
)
async def test_a_refusal_is_raised(coordinator_of, code, error):
    with pytest.raises(error):
        await coordinator_of(failed(code)).fetch_committed_offsets([TP])


@pytest.mark.parametrize(
    "answer",
    [
        NOTHING,
        OffsetFetchResponse_v2(NOTHING.topics, 0),
        OffsetFetchResponse_v1(NOTHING.topics),
    ],
)
async def test_that_nothing_was_committed_is_an_answer(coordinator_of, answer):
    assert await coordinator_of(answer).fetch_committed_offsets([TP]) == {}
