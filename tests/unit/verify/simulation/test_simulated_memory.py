"""Signals that memory and database count differently are found, but for those at a crawl."""

import numpy as np
import pytest

from services.scheduler.flow.loading import shard_rules
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.crawls import Outcomes
from services.verify.simulation.memory import Signalled, lost_or_doubled
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.contracts.request_ids import NO_REQUEST
from shared.rules.page_events import UNCHANGED
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings
from shared.store.history import SOURCES

RULES = shard_rules(Settings(), ManualClock(0.0))
CRAWLED = 1.7e9 + 0.5021
PAGE = identify("https://a.example/1")


def one(value, kind=np.float64):
    return np.array([value], kind)


def crawled_shard(before):
    """A page with signals of two sources, of which one came so long before the crawl, and was read
    after it."""
    shard = make_shard(0, RULES)
    shard.upsert(PAGE, PageUpdate("upsert", PAGE.url), CRAWLED - 90.0)
    ids = one(PAGE.page_id, np.int64)
    shard.signals(ids, one(CRAWLED - 9.0), ["cms"])
    digest, request = one(0, np.uint32), one(NO_REQUEST, np.int64)
    shard.outcomes(Outcomes(ids, one(CRAWLED), one(UNCHANGED, np.int8), request, digest))
    shard.signals(ids, one(CRAWLED - before), ["feed"])
    return shard


def offenders(shard, pending, times, written_at=CRAWLED - 60.0):
    signalled = Signalled([("feed", at) for at in times], written_at)
    return len(list(lost_or_doubled(shard, shard, pending, set(), {PAGE.url: signalled})))


@pytest.mark.parametrize(
    ("before", "counted", "found"),
    [(0.001, 0, 0), (0.001, 1, 0), (0.001, 2, 1), (0.1, 0, 0), (0.1, 1, 1), (-0.1, 1, 0)],
)
def test_one_signal_of_less_than_a_step_before_a_crawl_may_count_or_not(before, counted, found):
    shard = crawled_shard(before)
    pending = np.zeros((1, SOURCES), np.uint16)
    pending[0, 1] = counted
    assert offenders(shard, pending, [CRAWLED - 9.0, CRAWLED - before]) == found


def test_nor_need_it_be_the_last_one_of_its_source():
    shard = crawled_shard(-0.1)
    pending = np.zeros((1, SOURCES), np.uint16)
    pending[0, 1] = 2
    assert offenders(shard, pending, [CRAWLED - 0.004, CRAWLED + 0.1]) == 0
    assert offenders(shard, pending, [CRAWLED - 0.1, CRAWLED + 0.1]) == 1


@pytest.mark.parametrize(("written_after", "found"), [(1.0, 0), (-60.0, 1)])
def test_signals_that_are_read_before_their_crawl_count_once(written_after, found):
    shard = crawled_shard(-0.1)
    shard.signals(one(PAGE.page_id, np.int64), one(CRAWLED + 0.2), ["feed"])
    pending = np.zeros((1, SOURCES), np.uint16)
    pending[0, 1] = 1
    times = [CRAWLED + 0.1, CRAWLED + 0.2]
    assert offenders(shard, pending, times, CRAWLED + written_after) == found
    assert offenders(shard, 0 * pending, times, CRAWLED + written_after) == 1


def test_a_signal_that_is_lost_is_found():
    shard = crawled_shard(-0.1)
    assert offenders(shard, np.zeros((1, SOURCES), np.uint16), [CRAWLED + 0.1]) == 1
