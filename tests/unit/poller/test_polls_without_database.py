"""A site is not asked again and again because of what is away at home."""

import psycopg

from services.poller.sites import polling
from services.poller.sites.polling import SitePoller
from shared.runtime.settings import Settings
from shared.store.watched import DueSource, note_poll_failed

NOW = 1_700_000_000.0


class Clock:
    def now(self):
        return NOW


async def test_a_source_whose_pages_database_is_away_is_put_off_longer_each_time(monkeypatch):
    put_off = []

    async def ask(question, *arguments):
        assert question is note_poll_failed
        put_off.append(arguments)

    async def away(_due):
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(polling, "WALL", Clock())
    poller = SitePoller(Settings(poller_shortest_seconds=60.0), None, None)
    monkeypatch.setattr(poller._questions, "ask", ask)
    monkeypatch.setattr(poller, "_read", away)
    for failures in range(3):
        due = DueSource(**dict.fromkeys(DueSource._fields, "") | {"url": "u", "failures": failures})
        poller._under_way["u"] = poller._hosts["u"] = None
        await poller._poll(due)
    poller.stop()
    assert put_off == [("u", "connection refused", NOW + wait) for wait in (60, 120, 240)]
