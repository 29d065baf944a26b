"""Ledgers of runs as tests of checks make them up."""

import math
from types import SimpleNamespace

from services.verify.ledger import Answered, Asked, Ledger, Page
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, CrawlRequest

SHARDS = 4
URL = "https://a.example/0"
PAGE = identify(URL)
HERE = shard_of(PAGE.host, SHARDS)
TIMEOUT = 8.0
SETTINGS = SimpleNamespace(
    partitions=SHARDS,
    request_timeout_seconds=TIMEOUT,
    kafka_session_timeout_seconds=6.0,
    silent_after_seconds=3.0,
)


def asked(at, url=URL, written_at=None, reason="value", partition=None, deadline_at=None):
    page = identify(url)
    deadline_at = at + TIMEOUT if deadline_at is None else deadline_at
    request = CrawlRequest(
        *(f"r-{page.page_id:x}-{at}", page.page_id, url, page.host),
        *(at, deadline_at, 1.0, 1.0, reason),
    )
    shard = shard_of(page.host, SHARDS) if partition is None else partition
    return Asked(request, shard, 0, at if written_at is None else written_at)


def answered(one, at, result="unchanged", **more):
    request = one.request
    outcome = CrawlOutcome(
        request.url, at, request.host, request_id=request.request_id, result=result, **more
    )
    return Answered(outcome, one.partition, 0, at)


def stored(url=URL, crawls=0, last_crawled_at=-math.inf, status=0, importance=1.0, page_class=""):
    page = identify(url)
    shard = shard_of(page.host, SHARDS)
    return Page(page.page_id, shard, url, status, crawls, last_crawled_at, importance, page_class)


def ledger(**parts):
    empty = {
        "layout": Layout.of(SHARDS),
        "raw": {},
        "requests": [],
        "outcomes": [],
        "signals": [],
        "page_signals": [],
        "pages": [stored()],
        "observations": [],
        "transactions": [],
    }
    return Ledger(settings=SETTINGS, **(empty | parts))


def at_the_broker(slots, late):
    return ledger(requests=[asked(slot, written_at=slot + late) for slot in slots])
