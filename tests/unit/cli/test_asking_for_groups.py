"""`freshet positions` asks again where a broker does not know yet who coordinates a group."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiokafka import OffsetAndMetadata, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError

from services.cli import positions
from shared.runtime.settings import load_settings

PLACE = TopicPartition("signals", 3)


@pytest.fixture
def admin(monkeypatch):
    """A broker that answers what is in `answers`, one after the other; errors are raised."""

    async def answer(*_, **__):
        given = fake.answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    fake = SimpleNamespace(
        answers=[], list_consumer_group_offsets=answer, describe_consumer_groups=answer
    )

    @asynccontextmanager
    async def connected(_):
        yield fake

    monkeypatch.setattr(positions, "administering", connected)
    return fake


async def committed():
    return await positions._committed(load_settings(), positions.INGESTER, {PLACE.topic: [PLACE]})


async def test_offsets_are_asked_for_again(admin):
    found = {PLACE: OffsetAndMetadata(17, "")}
    admin.answers += [GroupCoordinatorNotAvailableError(), found]

    assert await committed() == {("ingester", "signals", 3): 17}


async def test_members_are_asked_for_again(admin):
    admin.answers += [GroupCoordinatorNotAvailableError(), []]

    await positions._require_stopped(load_settings(), "ingester")
    assert admin.answers == []


async def test_a_refusal_is_told_at_once(admin):
    admin.answers += [GroupAuthorizationFailedError(), {}]

    with pytest.raises(GroupAuthorizationFailedError):
        await committed()


@pytest.mark.parametrize(("state", "members"), [("Stable", ["one"]), ("Empty", ["one"])])
async def test_no_position_is_moved_under_a_worker_that_runs(admin, monkeypatch, state, members):
    group = (0, "ingesters", state, "consumer", "range", members)
    admin.answers += [[SimpleNamespace(groups=[group])]]
    moved = []

    async def commit(*arguments):
        moved.append(arguments)

    monkeypatch.setattr(positions, "_commit", commit)
    monkeypatch.setattr(positions, "_store", lambda *_: None)
    place = positions.Place("ingester", "signals", 3, 250, 100, 200, None, None)
    with pytest.raises(positions.StillRunning, match="1 ingesters are members"):
        await positions.settle(load_settings(), [place], "end")
    assert moved == []
    admin.answers += [[SimpleNamespace(groups=[(0, "ingesters", "Empty", "", "", [])])]]
    await positions.settle(load_settings(), [place], "end")
    [(_, reader, offsets)] = moved
    assert (reader, offsets[PLACE].offset) == ("ingester", 200)
