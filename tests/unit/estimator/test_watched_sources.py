"""How often the signals of a page are believed to come, when its source begins or falls silent."""

import numpy as np
import pytest
from aiokafka import ConsumerRecord

from services.estimator.application import apply_records
from services.estimator.learning import learn
from services.estimator.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.fields import MAX_RATE
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, PageSignal, PageUpdate
from shared.runtime.acceptance import Acceptance

DAY = 86_400.0
URL = "https://news.example/a"
PAGE = identify(URL)


def apply(shard, *messages):
    """Apply messages in one batch."""
    topics = {PageUpdate: "page-updates", PageSignal: "page-signals"}
    records = {}
    for message in messages:
        name = topics.get(type(message), "crawl-outcomes")
        record = ConsumerRecord(name, 0, 0, 1000, 0, None, encode(message), None, -1, -1, ())
        records.setdefault(name, []).append(record)
    learn(apply_records(shard, records, Acceptance(9_000 * DAY, 9_001 * DAY, True), 0.0))


def crawls(*days, result="unchanged"):
    return [CrawlOutcome(URL, float(day) * DAY, result=result) for day in days]


def signals(*days):
    return [PageSignal(PAGE.page_id, PAGE.url, PAGE.host, "feed", float(day) * DAY) for day in days]


def rate_of(shard):
    return float(shard.pages["signal_rate"][0])


@pytest.fixture
def shard():
    """With one page, known since day 0."""
    shard = Shard(0)
    apply(shard, PageUpdate("upsert", URL, updated_at=0.0))
    return shard


def test_few_signals_are_spread_over_all_days(shard):
    apply(shard, *crawls(10, 20), *signals(15))
    assert rate_of(shard) == pytest.approx(1.5 / 20.5)
    apply(shard, *crawls(30, result="failed"))
    assert rate_of(shard) == pytest.approx(1.5 / 30.5)


def test_without_a_signal_none_are_expected(shard):
    apply(shard, *crawls(*range(1, 400)))
    assert rate_of(shard) == 0.0


@pytest.mark.parametrize("quiet_days", [0, 365, 1095])
def test_a_source_that_begins_after_years_is_known_for_it_within_weeks(shard, quiet_days):
    apply(shard, *crawls(*range(10, quiet_days, 10)))
    for day in range(quiet_days, quiet_days + 60):
        apply(shard, *signals(*np.linspace(day, day + 0.9, 10)), *crawls(day + 0.95))

    assert rate_of(shard) == pytest.approx(10.0, rel=0.1)


def test_a_source_that_falls_silent_is_known_for_it_while_crawls_go_on(shard):
    apply(shard, *signals(*np.arange(1, 731, 0.2)))
    assert rate_of(shard) == pytest.approx(5.0, rel=0.05)
    apply(shard, *crawls(*range(740, 920, 10)))
    assert rate_of(shard) < 0.4


def test_batches_make_no_difference(shard):
    rng = np.random.default_rng(15)
    days = np.cumsum(rng.exponential(0.7, 60))
    events = [crawls(day)[0] if place % 3 else signals(day)[0] for place, day in enumerate(days)]
    for event in events:
        apply(shard, event)
    at_once = Shard(0)
    apply(at_once, PageUpdate("upsert", URL, updated_at=0.0))
    apply(at_once, *events)

    assert rate_of(shard) == rate_of(at_once) > 0.0


def test_of_a_page_that_is_added_again_holds_what_was_learned(shard):
    apply(shard, *signals(*range(1, 101)))
    before = rate_of(shard)
    apply(shard, PageUpdate("remove", URL, updated_at=101 * DAY))
    apply(shard, PageUpdate("upsert", URL, updated_at=2_000 * DAY))
    assert rate_of(shard) == before
    apply(shard, *crawls(2_001))
    assert rate_of(shard) == before


@pytest.mark.parametrize("a_day", [288, 1440])
@pytest.mark.parametrize("hours", [8, 24])
def test_a_backlog_of_signals_after_the_crawls_of_its_hours_is_what_came_in_them(a_day, hours):
    """The ingester was away, and crawls went on: each signal raised the rate by a part, and after a
    day it was a hundred million times what it had been."""
    shard, end = Shard(0), 4.0 + hours / 24
    apply(shard, PageUpdate("upsert", URL, updated_at=DAY))
    for day in range(1, 4):
        apply(shard, *signals(*(day + np.arange(a_day) / a_day)))
    assert rate_of(shard) == pytest.approx(a_day, rel=0.05)
    apply(shard, *crawls(*np.arange(4.0, end, 1 / 48)))
    assert rate_of(shard) < a_day / 2
    apply(shard, *signals(*np.arange(4.0, end - 1 / 48, 1 / a_day)))
    assert a_day / 2 < rate_of(shard) < 2 * a_day


def test_whatever_comes_at_once_a_rate_can_be_told():
    shard = Shard(0)
    apply(shard, PageUpdate("upsert", URL, updated_at=DAY))
    apply(shard, *signals(*(2.0 + np.arange(5_000) * 1e-9)))
    assert 0 < rate_of(shard) <= MAX_RATE
