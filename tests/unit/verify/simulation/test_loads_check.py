"""A shard that is loaded with more unanswered requests than were made is found."""

from types import SimpleNamespace

import pytest

from services.scheduler.flow.loading import shard_rules
from services.scheduler.picking.calendar import make_shard
from services.verify.simulation.loads import Loads
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlRequest, PageUpdate
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings

NOW = 1.7e9
PAGE = identify("https://a.example/1")


def log(*times):
    """A partition with requests for the page."""
    requests = [
        CrawlRequest("r", PAGE.page_id, PAGE.url, PAGE.host, at, at + 9.0, 1.0, 1.0, "value")
        for at in times
    ]
    records = [SimpleNamespace(value=encode(request)) for request in requests]
    return SimpleNamespace(records=[], history=lambda: [(record, 0.0) for record in records])


def loaded(unanswered):
    """A shard that counts so many requests as not answered since the last crawl."""
    shard = make_shard(0, shard_rules(Settings(), ManualClock(NOW)))
    shard.upsert(PAGE, PageUpdate("upsert", PAGE.url, crawled_at=NOW - 50.0), NOW - 90.0)
    attempt = shard.attempts.open(shard.pages[shard.row_of(PAGE.page_id)])
    attempt["unanswered"], attempt["deadline"] = unanswered - 1, NOW
    return shard


@pytest.mark.parametrize(("unanswered", "wrong"), [(1, 0), (2, 0), (3, 1)])
def test_no_more_count_than_were_made_since_the_last_crawl(unanswered, wrong):
    loads = Loads()
    loads.look(loaded(unanswered), log(), [log(NOW - 60.0, NOW - 40.0), log(NOW - 20.0)])
    assert (loads.in_flight, loads.wrong) == (1, wrong)
