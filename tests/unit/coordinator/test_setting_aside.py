"""Bad records are set aside by who leads, and looked for among the letters where another did."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import LeaderNotAvailableError, TopicAuthorizationFailedError
from structlog.testing import capture_logs

from services.coordinator import set_aside
from services.coordinator.set_aside import BadRecords
from services.coordinator.worker import Coordinator
from shared.runtime.settings import Settings


@pytest.fixture
def looks(monkeypatch):
    """What was looked for among the letters: all of it is there already."""
    found = []

    async def look(_settings, _stage, bad):
        found.append([one.reason for one in bad])
        return []

    monkeypatch.setattr(set_aside, "_not_set_aside", look)
    return found


async def taken(bad):
    return [one.reason for one in await bad.take(SimpleNamespace(), "coordinator")]


def found(bad, reason):
    bad.add(SimpleNamespace(value=b"{"), reason)


async def test_who_begins_to_lead_looks_which_are_set_aside_and_then_sets_each_aside(looks):
    bad = BadRecords()
    found(bad, "of before")
    assert await taken(bad) == []
    assert looks == [["of before"]]
    found(bad, "of now")
    assert await taken(bad) == ["of now"]
    assert len(looks) == 1, "nobody else leads"


async def test_who_leads_again_looks_again_even_if_another_led_amid_the_look(looks, monkeypatch):
    bad = BadRecords()
    look = set_aside._not_set_aside

    async def overtaken(*args):
        bad.follow()
        return await look(*args)

    monkeypatch.setattr(set_aside, "_not_set_aside", overtaken)
    found(bad, "first")
    await taken(bad)
    found(bad, "second")
    assert await taken(bad) == []
    assert looks == [["first"], ["second"]]


class Letters:
    """Of a publisher whose broker stores them, or refuses some."""

    def __init__(self):
        self.stored = []
        self.refused = {}

    async def dead_letter(self, _record, _stage, reason):
        told = asyncio.get_running_loop().create_future()
        if reason in self.refused:
            told.set_exception(self.refused[reason])
        else:
            self.stored.append(reason)
            told.set_result(None)
        return told


@pytest.fixture
async def leading(monkeypatch):
    """A coordinator that leads, and its letters."""

    async def none_is(_settings, _stage, bad):
        return bad

    monkeypatch.setattr(set_aside, "_not_set_aside", none_is)
    coordinator = Coordinator(Settings())
    coordinator._publisher = Letters()
    return coordinator, coordinator._publisher


async def a_turn(coordinator):
    coordinator._begin_to_set_aside()
    await asyncio.wait([coordinator._setting_aside])


async def test_a_letter_that_the_broker_does_not_store_now_is_written_later(leading):
    coordinator, letters = leading
    letters.refused["second"] = LeaderNotAvailableError()
    for reason in ("first", "second", "third"):
        found(coordinator._bad, reason)
    await a_turn(coordinator)
    found(coordinator._bad, "fourth")
    with capture_logs() as logs:
        await a_turn(coordinator)
    assert [entry["log_level"] for entry in logs] == ["warning"]
    letters.refused.clear()
    await a_turn(coordinator)
    await a_turn(coordinator)
    assert letters.stored == ["first", "third", "fourth", "second"]


async def test_a_letter_that_the_broker_refuses_ends_the_coordinator(leading):
    """Whoever starts next reads the record again, and finds no letter about it."""
    coordinator, letters = leading
    letters.refused["bad"] = TopicAuthorizationFailedError("dead-letters")
    found(coordinator._bad, "bad")
    await a_turn(coordinator)
    with pytest.raises(TopicAuthorizationFailedError):
        coordinator._begin_to_set_aside()


def test_of_what_is_put_back_the_oldest_go_when_they_are_many(monkeypatch):
    monkeypatch.setattr(set_aside, "HELD_BYTES", 2)
    bad = BadRecords()
    for reason in ("a", "b"):
        found(bad, reason)
    taken = list(bad._waiting)
    bad._waiting.clear()
    bad._bytes = 0
    found(bad, "c")
    bad.put_back(taken)
    assert [one.reason for one in bad._waiting] == ["b", "c"]
