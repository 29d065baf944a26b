"""Pages without a crawl record go by their directory and their signals, beside their host."""

import math

import numpy as np
import pytest
from reference_shard import rules

from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.host_factors import Factors
from services.scheduler.state.rows import RECORD
from shared.contracts.identity import identify
from shared.contracts.messages import HostParameters, PageUpdate
from shared.store.directories import directory_of

NOW = 1.7e9
ACTIVITY = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
LIVE, DEAD, OTHER = (f"https://a.example/{name}/1" for name in ("live", "dead", "other"))


def told(alpha=0.1, activity=ACTIVITY, directories=None):
    named = {LIVE: 10.0, DEAD: 0.1} if directories is None else directories
    numbers = sorted((directory_of(url), factor) for url, factor in named.items())
    return HostParameters(
        "a.example",
        alpha,
        0.5,
        [],
        [0.5] * 4,
        [1.0] * 6,
        NOW,
        activity_factors=activity,
        directories=[number for number, _ in numbers],
        directory_factors=[factor for _, factor in numbers],
    )


@pytest.fixture
def shard():
    shard = make_shard(0, rules())
    for url in (LIVE, DEAD, OTHER):
        shard.upsert(identify(url), PageUpdate("upsert", url), NOW)
    return shard


def alpha(shard, url):
    return float(shard.pages[shard.row_of(identify(url).page_id)]["alpha"])


def learned(shard, url, alpha, activity):
    one = np.array([identify(url).page_id])
    rates = (np.array([alpha]), np.array([alpha]), np.array([0.2]))
    shard.parameters(one, *rates, np.array([activity], np.uint8))


def test_pages_never_crawled_follow_their_directories_without_a_message_each(shard):
    shard.host_parameters([told()])
    assert [alpha(shard, url) for url in (LIVE, DEAD, OTHER)] == pytest.approx([0.5, 0.005, 0.05])
    shard.host_parameters([told(alpha=0.2, directories={OTHER: 4.0})])
    assert [alpha(shard, url) for url in (LIVE, DEAD, OTHER)] == pytest.approx([0.1, 0.1, 0.4])


def test_a_new_page_has_the_factor_of_its_directory_at_once(shard):
    shard.host_parameters([told()])
    url = "https://a.example/live/2"
    shard.upsert(identify(url), PageUpdate("upsert", url), NOW)
    assert alpha(shard, url) == pytest.approx(0.5)


def test_a_page_that_was_signalled_has_another_factor(shard):
    shard.host_parameters([told()])
    learned(shard, OTHER, math.nan, 6)
    assert alpha(shard, OTHER) == pytest.approx(0.6)
    shard.host_parameters([told(alpha=0.2)])
    assert alpha(shard, OTHER) == pytest.approx(1.2)


def test_a_page_with_a_rate_of_its_own_keeps_it(shard):
    learned(shard, LIVE, 0.3, 2)
    shard.host_parameters([told()])
    assert alpha(shard, LIVE) == pytest.approx(0.3)
    learned(shard, LIVE, math.nan, 2)
    assert alpha(shard, LIVE) == pytest.approx(0.1 * 2.0 * 10.0)


def test_however_often_hosts_are_told_of_memory_is_bounded():
    factors = Factors(64)
    rng = np.random.default_rng(1)
    known = {}
    for _ in range(2000):
        host = int(rng.integers(64))
        numbers = np.unique(rng.integers(0, 65_536, int(rng.integers(0, 60))))
        values = rng.random(numbers.size)
        factors.set(host, ACTIVITY, numbers.tolist(), values.tolist())
        known[host] = dict(zip(numbers.tolist(), values.astype(np.float32), strict=True))
    assert factors.tables.directories.size <= 4 * 64 * 60
    for host, of_host in known.items():
        begin, count = factors.tables.begins[host], factors.tables.counts[host]
        mine = slice(begin, begin + count)
        numbers = factors.tables.directories[mine].tolist()
        assert dict(zip(numbers, factors.tables.factors[mine], strict=True)) == of_host
        assert numbers == sorted(numbers)


def test_a_page_costs_four_bytes_more_and_no_row_is_wider():
    assert RECORD.itemsize == 20
