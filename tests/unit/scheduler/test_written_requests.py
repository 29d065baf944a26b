"""What is found for all requests of a turn at once is what each of them would say by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_shard import DAY, rules, url_of

from services.scheduler.flow.requests import crawls_of, write_requests
from services.scheduler.picking.calendar import make_shard
from services.scheduler.picking.filling import PICK
from services.scheduler.picking.priority import RETRY
from services.scheduler.state.report_notes import REASONS
from shared.contracts.codec import decode
from shared.contracts.messages import CrawlRequest, PageUpdate
from shared.contracts.request_ids import microseconds, request_id_of, requested_us_of

NOW = 1.7e9
HOSTS, PAGES = 3, 12
VALUES = st.floats(0.0, 4.0)
PICKS = st.lists(
    st.tuples(
        st.integers(0, PAGES - 1),
        st.floats(0.0, 1e6).map(lambda after: NOW + after),
        VALUES,
        st.integers(0, len(REASONS) - 1),
    ),
    max_size=20,
)


@pytest.fixture(scope="module")
def shard():
    made = make_shard(7, rules())
    for number in range(PAGES):
        page = url_of(f"h{number % HOSTS}", number)
        made.upsert(page, PageUpdate("upsert", page.url, crawled_at=NOW - DAY), NOW - 10 * DAY)
    return made


def picks_of(drawn):
    picks = np.zeros(len(drawn), PICK)
    for pick, (row, time, value, tier) in zip(picks, drawn, strict=True):
        pick["row"], pick["time"], pick["value"], pick["tier"] = row, time, value, tier
    return picks


def threshold_of(host, pick, multiplier):
    """λ₀, and what the host's pages are worth above it where it is held back."""
    threshold = multiplier
    if host["held_back"] > multiplier:
        threshold += max(host["typical_value"] - multiplier, 0.0)
    if pick["tier"] <= RETRY:
        threshold = max(min(threshold, pick["value"]), multiplier)
    return threshold


@settings(deadline=None)
@given(PICKS, st.lists(st.tuples(VALUES, VALUES), min_size=HOSTS, max_size=HOSTS), VALUES)
def test_the_thresholds_of_picks_are_those_of_each(shard, drawn, of_hosts, multiplier):
    picks = picks_of(drawn)
    for row, (typical, held_back) in zip(shard.hosts.rows, of_hosts, strict=False):
        row["typical_value"], row["held_back"] = typical, held_back
    hosts = shard.hosts.rows[shard.pages["host"][picks["row"]]]
    one_by_one = [threshold_of(*pair, multiplier) for pair in zip(hosts, picks, strict=True)]

    assert crawls_of(shard, picks, multiplier).asked["threshold"].tolist() == one_by_one


@settings(deadline=None)
@given(PICKS)
def test_the_crawls_of_a_turn_are_counted_by_tier_and_their_least_value_is_known(shard, drawn):
    crawls = crawls_of(shard, picks_of(drawn), 0.5)
    tiers = [tier for *_, tier in drawn]

    assert crawls.by_tier.tolist() == [tiers.count(tier) for tier in range(len(REASONS))]
    by_value = [worth for _, _, worth, tier in drawn if tier <= RETRY]
    assert crawls.least == min(by_value, default=np.inf)


@settings(deadline=None)
@given(PICKS)
def test_each_request_says_what_was_picked(shard, drawn):
    picks = picks_of(drawn)
    asked = crawls_of(shard, picks, 0.5).asked
    written, thresholds = write_requests(shard, asked), asked["threshold"]
    timeout = shard.rules.picking.request_timeout

    assert len(written) == len(drawn)
    for (key, value), (row, time, worth, tier), threshold in zip(
        written, drawn, thresholds, strict=True
    ):
        page = url_of(f"h{row % HOSTS}", row)
        number = request_id_of(7, page.page_id, microseconds(time))
        expected = CrawlRequest(
            number,
            page.page_id,
            page.url,
            page.host,
            time,
            time + timeout,
            worth,
            float(threshold),
            REASONS[tier],
        )
        assert decode(CrawlRequest, value) == expected
        assert key == page.host.encode()
        assert requested_us_of(number) == microseconds(time)
        assert number == f"{7:x}-{page.page_id:x}-{microseconds(time):x}"
