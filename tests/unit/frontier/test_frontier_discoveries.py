"""Discovered URLs are answered, whatever is wrong."""

import asyncio

import psycopg
import pytest

from services.frontier import discoveries
from services.frontier.discoveries import Discoveries, _Gathering
from services.frontier.refusing import NotStored
from shared.discovery.admission import Judged, Link
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings

LINKS = [Link(f"https://a.example/{n}", None, 0.0) for n in range(3)]


class Admission:
    def __init__(self, *faults):
        self.faults = list(faults)

    async def judge(self, links, now):
        if self.faults:
            raise self.faults.pop(0)
        return [Judged("known", None) for _ in links]


@pytest.mark.parametrize("fault", [psycopg.OperationalError("away"), RuntimeError("of ours")])
async def test_who_waits_hears_of_any_fault_and_the_next_are_judged(fault):
    gathering = _Gathering(Admission(fault))
    async with asyncio.timeout(30):
        found = await asyncio.gather(*map(gathering.judge, LINKS), return_exceptions=True)
        assert found == [fault] * 3
        assert (await gathering.judge(LINKS[0])).became == "known"


class Database:
    """Has the host, and never a page."""

    def __init__(self, _questions):
        pass

    async def hosts(self, hosts, now):
        return set(hosts)

    async def pages(self, pages):
        return set()

    async def let_in(self, pages, most, now):
        return {page.page_id: "new" for page in pages}


class Broker:
    """Is away when it is written first."""

    def __init__(self):
        self.sent = []

    async def send(self, topic, host, message):
        self.sent.append(message.url)
        if len(self.sent) == 1:
            raise NotStored("the broker is away")


async def test_a_page_that_was_not_stored_is_added_when_its_url_is_sent_again(monkeypatch):
    monkeypatch.setattr(discoveries, "WhatIsKnown", Database)
    broker = Broker()
    taking = Discoveries(Settings(frontier_discoveries=True), broker, ManualClock(1.7e9))
    became = [await taking.take("https://a.example/1", None) for _ in range(3)]
    taking.stop()
    assert became == ["failed", "added", "known"]
    assert broker.sent == ["https://a.example/1"] * 2
