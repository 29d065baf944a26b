"""Bad records are set aside by who leads, and looked for among the letters where another did."""

from types import SimpleNamespace

import pytest

from services.coordinator import set_aside
from services.coordinator.set_aside import BadRecords


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
