"""What the estimator learned of hosts: priors, burst multipliers, and what sources are worth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_shard import DAY, rules, url_of

from services.scheduler.picking.calendar import make_shard
from services.scheduler.picking.priority import Terms, crawl_value_of
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.learned_hosts import LearnedHosts
from shared.contracts.messages import HostParameters, PageUpdate
from shared.contracts.request_ids import NO_REQUEST
from shared.policy.estimation.quiet_pages import QuietPages
from shared.policy.kernels.crawl_value import value_at_evidence
from shared.rules.page_events import CHANGED, COMPARE, IS_GONE, UNCHANGED
from shared.store.columns import HostColumns, host_rules
from shared.store.host_factors import HostFactors
from shared.store.hosts import HostLearning

NOW = 1.7e9
MULTIPLIERS = [0.5, 4.0, 2.0, 1.0, 0.7, 0.2]


def told(host="a.example", alpha=0.1, kappa=0.5, sources=(), evidence=(0.5,) * 4, bursts=None):
    return HostParameters(
        host, alpha, kappa, list(sources), list(evidence), bursts or [1.0] * 6, NOW
    )


@pytest.fixture
def shard():
    shard = make_shard(0, rules())
    for number in range(2):
        page = url_of("a", number)
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=NOW - DAY), NOW - 10 * DAY)
    return shard


def test_signals_of_next_to_no_evidence_leave_numbers(shard):
    shard.host_parameters([told(kappa=1e-150, evidence=(1e150, 1e-150, 0.5, 0.5))])
    shard.signals(np.array([url_of("a", 0).page_id]), np.array([NOW + 1.0]), ["feed"])

    assert np.isfinite(shard.hosts.learned.tables.weights).all()
    assert not math.isnan(crawl_value_of(row_of(shard), NOW + DAY, Terms(False, 0.0, 0.0)))


def row_of(shard, number=0):
    return shard.pages[shard.row_of(url_of("a", number).page_id)]


def learned(shard, alpha, kappa=0.4, gamma=0.0, number=0):
    page_id = np.array([url_of("a", number).page_id])
    shard.parameters(page_id, np.array([alpha]), np.array([kappa]), np.array([gamma]))


def crawled(shard, at, result=UNCHANGED, digest=0, number=0):
    shard.outcomes(
        Outcomes(
            np.array([url_of("a", number).page_id]),
            np.array([at]),
            np.array([result], np.int8),
            np.array([NO_REQUEST]),
            np.array([digest], np.uint32),
        )
    )


def signal(shard, at, source="feed", number=0):
    shard.signals(np.array([url_of("a", number).page_id]), np.array([at]), [source])


def test_pages_without_parameters_of_their_own_have_their_hosts(shard):
    assert row_of(shard)["alpha"] == pytest.approx(1 / 60)
    learned(shard, 0.3, number=1)
    shard.host_parameters([told(alpha=0.01, kappa=0.7)])
    assert (row_of(shard)["alpha"], row_of(shard)["kappa"]) == (0.01, 0.7)
    assert row_of(shard, 1)["alpha"] == 0.3
    page = url_of("a", 9)
    shard.upsert(page, PageUpdate("upsert", page.url), NOW)
    assert row_of(shard, 9)["alpha"] == 0.01


def test_parameters_without_a_rate_leave_it_to_the_host(shard):
    shard.host_parameters([told(alpha=0.02, kappa=0.9)])
    learned(shard, math.nan, math.nan, 2.0)
    row = row_of(shard)
    assert (row["alpha"], row["kappa"], row["gamma"]) == (0.02, 0.9, 2.0)


def test_the_rate_goes_with_the_age_of_the_page_at_its_last_crawl(shard):
    shard.host_parameters([told(bursts=MULTIPLIERS)])
    learned(shard, 0.1)
    expected = []
    for at, result, factor in (
        (1.0, UNCHANGED, 0.5),
        (2.0, CHANGED, 4.0),
        (5.0, UNCHANGED, 2.0),
        (20.0, IS_GONE, 2.0),
        (21.0, UNCHANGED, 1.0),
        (100.0, UNCHANGED, 0.7),
        (300.0, UNCHANGED, 0.2),
        (301.0, CHANGED, 4.0),
    ):
        crawled(shard, NOW + at * DAY, result)
        expected.append((row_of(shard)["alpha"], 0.1 * factor))
    assert [a for a, _ in expected] == pytest.approx([b for _, b in expected], rel=2e-4)


def test_a_multiplier_is_fixed_at_the_crawl_for_the_next_interval(shard):
    shard.host_parameters([told(bursts=MULTIPLIERS)])
    learned(shard, 0.1)
    assert row_of(shard)["alpha"] == pytest.approx(0.1), "no crawl since, no multiplier"
    crawled(shard, NOW, CHANGED)
    shard.host_parameters([told()])
    learned(shard, 0.2)
    assert row_of(shard)["alpha"] == pytest.approx(0.8)
    crawled(shard, NOW + DAY)
    assert row_of(shard)["alpha"] == pytest.approx(0.2)


def test_pages_that_never_changed_follow_their_host_at_once(shard):
    for number, result in ((0, UNCHANGED), (1, CHANGED)):
        learned(shard, 0.1, number=number)
        crawled(shard, NOW, result, number=number)
    page = url_of("a", 2)
    shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=NOW - DAY), NOW - 10 * DAY)

    shard.host_parameters([told(alpha=0.03, bursts=[0.02, 4.0, 2.0, 1.0, 0.7, 0.2])])

    assert row_of(shard, 0)["alpha"] == pytest.approx(0.1 * 0.02, rel=2e-4)
    assert row_of(shard, 1)["alpha"] == pytest.approx(0.1), "fixed at its crawl"
    assert row_of(shard, 2)["alpha"] == pytest.approx(0.03)
    crawled(shard, NOW + DAY, CHANGED)
    assert row_of(shard, 0)["alpha"] == pytest.approx(0.4)


def test_pages_that_follow_their_host_come_up_when_they_are_due(shard):
    learned(shard, 0.1)
    crawled(shard, NOW)
    row = shard.row_of(url_of("a", 0).page_id)
    shard.pages["due_staleness"][row] = 0.3

    shard.host_parameters([told()])
    assert shard.pages["due_staleness"][row] == np.float32(0.3), "nothing moved"
    shard.host_parameters([told(bursts=[0.5, 1.0, 1.0, 1.0, 1.0, 1.0])])
    assert shard.pages["due_staleness"][row] != np.float32(0.3)


def test_what_is_loaded_of_quiet_pages_is_as_told():
    belief, bursts = np.array([0.25, 1.0]), HostLearning.initial(2)
    bursts.signals[:, 0], bursts.precision[:] = 9.0, 0.8
    bursts.expected_changes[:] = np.arange(1.0, 7.0)
    columns = HostColumns(
        np.arange(2),
        ["a.example", "b.example"],
        host_rules(2),
        np.zeros(2),
        np.full(2, 0.5),
        np.full(2, 10.0),
        [[], []],
        bursts,
        [HostFactors.none(), HostFactors.none()],
        QuietPages(np.zeros(2), np.zeros(2), belief),
    )
    hosts = LearnedHosts()
    for number in range(2):
        hosts.add(number)

    hosts.load(columns)

    assert hosts.tables.alpha[:2] == pytest.approx([0.0125, 0.05])
    never = hosts.tables.multipliers[:2, 0] / bursts.multipliers[:, 0]
    assert never.tolist() == belief.tolist()
    assert (hosts.tables.multipliers[:2, 1:] == bursts.multipliers[:, 1:]).all()


def test_digests_tell_changes(shard):
    shard.host_parameters([told(bursts=MULTIPLIERS)])
    learned(shard, 0.1)
    for at, digest, factor in ((1, 7, 1.0), (2, 7, 0.5), (3, 8, 4.0), (4, 8, 2.0)):
        crawled(shard, NOW + at * DAY, COMPARE, digest)
        assert row_of(shard)["alpha"] == pytest.approx(0.1 * factor)


def test_late_news_of_a_crawl_changes_no_age(shard):
    shard.host_parameters([told(bursts=MULTIPLIERS)])
    learned(shard, 0.1)
    crawled(shard, NOW + DAY)
    crawled(shard, NOW, CHANGED)
    assert row_of(shard)["alpha"] == pytest.approx(0.05)


def test_a_first_signal_acts_at_once(shard):
    shard.host_parameters([told(kappa=0.8)])
    before = crawl_value_of(row_of(shard), NOW, Terms(False, 0.0, 0.0))
    signal(shard, NOW)
    row = row_of(shard)
    assert row["gamma"] == pytest.approx(1.5 / 10.5)
    assert row["kappa"] == 0.8
    assert crawl_value_of(row, NOW, Terms(False, 0.0, 0.0)) > 2 * before
    learned(shard, 0.1, gamma=0.0)
    assert row["gamma"] > 0, "written before the estimator saw the signal"
    learned(shard, 0.1, gamma=0.3)
    assert row["gamma"] == 0.3


def test_signals_count_by_what_their_source_is_worth(shard):
    shard.host_parameters(
        [told(kappa=0.5, sources=["feed", "spam"], evidence=[1.0, 0.05, 0.5, 0.5])]
    )
    for minutes, (source, count) in enumerate([("feed", 2.0), ("spam", 2.1), ("new", 3.1)], 1):
        signal(shard, NOW + 60 * minutes, source)
        assert row_of(shard)["signals"] == pytest.approx(count)
    full = told(kappa=0.5, sources=["feed", "spam", "x"], evidence=[1.0, 0.05, 0.5, 0.25])
    shard.host_parameters([full])
    signal(shard, NOW + 600, "new")
    assert row_of(shard)["signals"] == pytest.approx(3.6)


def test_the_value_counts_the_evidence_of_all_sources(shard):
    shard.host_parameters([told(kappa=0.5, sources=["feed"], evidence=[0.8, 0.5, 0.5, 0.5])])
    learned(shard, 0.1, 0.5, 0.3)
    signal(shard, NOW - 60)
    signal(shard, NOW)
    row = row_of(shard)
    value, _ = value_at_evidence(0.1, 0.5, 0.3, 1.0, 1.6)
    assert crawl_value_of(row, NOW, Terms(False, 0.0, 0.0)) == pytest.approx(value, rel=1e-6)


RATES = st.floats(1e-3, 1e3)
TOLD = st.builds(
    told,
    st.sampled_from(["a.example", "b.example", "c.example"]),
    RATES,
    RATES,
    st.lists(st.sampled_from(["feed", "cms", "site", "rss"]), unique=True, max_size=3),
    st.lists(RATES, min_size=4, max_size=4),
    st.lists(RATES, min_size=6, max_size=6),
)


@pytest.mark.slow(0.5)
@settings(deadline=None)
@given(st.lists(st.sampled_from(["feed", "cms", "site", "rss"]), max_size=6), st.lists(TOLD))
def test_what_is_learned_of_many_hosts_at_once_is_as_one_by_one(sources, messages):
    at_once, one_by_one = make_shard(0, rules()), make_shard(0, rules())
    page = url_of("a", 0)
    for shard in at_once, one_by_one:
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=NOW - DAY), NOW - 10 * DAY)
        for place, source in enumerate(sources):
            shard.signals(np.array([page.page_id]), np.array([NOW + place]), [source])

    at_once.host_parameters(messages)
    for message in messages:
        one_by_one.host_parameters([message])

    for of_all, of_each in zip(
        (*at_once.hosts.learned.tables[:4], at_once.hosts.learned.tables.factors.activity),
        (*one_by_one.hosts.learned.tables[:4], one_by_one.hosts.learned.tables.factors.activity),
        strict=True,
    ):
        assert np.array_equal(of_all, of_each)
    hosts = np.arange(len(at_once.hosts), dtype=np.int32)
    for source in ["feed", "cms", "site", "rss"]:
        of_each = one_by_one.hosts.learned.slots_of(hosts, [source] * hosts.size)
        assert np.array_equal(at_once.hosts.learned.slots_of(hosts, [source] * hosts.size), of_each)
