"""Host priors: the Gamma fit, pooling, credit of signals, recovery of a population."""

import numpy as np
import pytest
from scipy.special import digamma
from scipy.stats import gamma

from shared.policy.estimation.bursts import trusts_bursts
from shared.policy.estimation.host_priors import (
    UNDECIDED,
    HostPriors,
    HostSums,
    fit_host_priors,
    gamma_shape,
    host_sums,
    initial_host_priors,
    signal_verdicts,
)
from shared.policy.estimation.map_fit import MapColumns, fit_histories_map, fit_rings_map
from shared.policy.estimation.map_kernel import LOWEST_PRECISION


def sums(pages, rate, log_rate, credited=0.0, signals=0.0) -> HostSums:
    columns = [np.atleast_1d(np.asarray(value, float)) for value in (pages, rate, log_rate)]
    width = columns[0].size
    return HostSums(
        *columns,
        np.broadcast_to(np.asarray(credited, float), (width, 1)).copy(),
        np.broadcast_to(np.asarray(signals, float), (width, 1)).copy(),
        columns[1],
        columns[0],
        np.zeros((width, 1)),
        np.zeros((width, 1)),
        np.zeros((width, 1)),
    )


def test_gamma_shape_solves_its_equation():
    shape = 10 ** np.linspace(-1.5, 2.5, 60)
    gap = np.log(shape) - digamma(shape)
    np.testing.assert_allclose(gamma_shape(gap), shape, rtol=1e-10)
    assert np.isfinite(gamma_shape(np.array([-1.0, 0.0, 1e300]))).all()


def test_nothing_observed_leaves_the_initial_priors():
    fitted = fit_host_priors(sums([0, 0], [0, 0], [0, 0]))
    initial = initial_host_priors(2, 1)
    for after, before in zip(fitted, initial, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-9)


def test_a_large_host_learns_its_own_prior_and_a_small_one_the_common():
    spread = digamma(2.0) - np.log(2.0 / 0.5)
    large = sums([1e6, 0], [0.5e6, 0], [1e6 * spread, 0])
    fitted = fit_host_priors(large)
    np.testing.assert_allclose(fitted.shape, 2.0, rtol=1e-3)
    np.testing.assert_allclose(fitted.shape / fitted.rate, 0.5, rtol=1e-3)


def test_the_most_uneven_host_gives_no_quiet_page_up_at_once():
    uneven = fit_host_priors(sums([1e6], [1e6], [-1e9]))
    np.testing.assert_allclose(uneven.shape / uneven.rate, 1.0, rtol=1e-3)
    priors = HostPriors(uneven.shape, uneven.rate, np.array([[0.5]]))
    quiet = fit_histories_map([100.0], [0], [0], [0, 1], np.array([0]), priors)
    # A/(B + t) with the least A, 0.3, and B = A.
    assert quiet.unsignalled_change_rate[0] == pytest.approx(0.3 / 100.3, rel=1e-3)


def test_hosts_pool_within_their_site_first():
    spread = digamma(2.0) - np.log(2.0)
    table = sums([1e4, 0, 1e4, 0], [1e4, 0, 1e2, 0], [1e4 * spread, 0, 1e4 * spread - 4e4, 0])
    fitted = fit_host_priors(table, site_of_host=np.array([0, 0, 1, 1]))
    means = fitted.shape / fitted.rate
    assert means[1] == pytest.approx(1.0, rel=0.01)
    assert means[3] == pytest.approx(0.01, rel=0.05)


def of_two_sources(credited, signals, surplus) -> HostSums:
    """Of hosts without pages; all rows are (hosts, 2)."""
    columns = [np.array(rows, float) for rows in (credited, signals, surplus)]
    hosts = np.zeros((5, columns[0].shape[0]))
    return HostSums(
        *hosts[:3], *columns[:2], *hosts[3:], columns[2], columns[1] / 9.0, columns[1] / 3.0
    )


FEED, SCRAPER, FREE = range(3)


@pytest.mark.parametrize("small", [(FEED, SCRAPER), (SCRAPER, FEED), (SCRAPER, FREE)])
def test_a_source_has_its_site_behind_it_in_whatever_place(small):
    table = of_two_sources(
        [[89.5, 1.0], [0.0, 0.0], [0.0, 0.0]],
        [[99.0, 99.0], [0.0, 0.0], [0.0, 0.0]],
        [[30.0, -9.0], [0.0, 0.0], [0.0, 0.0]],
    )
    sources = np.array([(FEED, SCRAPER), small, (FEED, SCRAPER)])

    precision = fit_host_priors(table, np.array([0, 0, 1]), sources).precision

    # The scraper says nothing, as the first host has found out; of another site it may.
    expected = {FEED: 0.9, SCRAPER: LOWEST_PRECISION, FREE: 0.5}
    assert precision[1] == pytest.approx([expected[source] for source in small])
    assert precision[2] == pytest.approx([0.5, 0.5])


def test_hosts_of_a_site_that_know_a_source_by_other_places_know_it_together():
    table = of_two_sources(
        [[9.0, 40.0], [10.0, 31.0]], [[10.0, 49.0], [50.0, 39.0]], [[0.0, 0.0], [0.0, 0.0]]
    )
    table = table._replace(surplus_variance=table.room * 1e6)

    precision = fit_host_priors(table, np.array([0, 0]), np.array([[0, 1], [1, 0]])).precision

    first, second = (9.0 + 31.0 + 0.5) / 50.0, (40.0 + 10.0 + 0.5) / 100.0
    expected = [
        [(9.0 + first) / 11.0, (40.0 + second) / 50.0],
        [(10.0 + second) / 51.0, (31.0 + first) / 40.0],
    ]
    np.testing.assert_allclose(precision, expected)


def test_without_names_a_place_is_one_source_everywhere():
    table = of_two_sources([[20.0, 1.0], [0.0, 0.0]], [[39.0, 3.0], [0.0, 0.0]], np.zeros((2, 2)))
    table = table._replace(surplus_variance=table.room * 1e6)
    precision = fit_host_priors(table, np.array([0, 0])).precision
    np.testing.assert_allclose(precision[1], [20.5 / 40.0, 1.5 / 4.0])


def test_precision_is_the_credited_share_and_stays_inside():
    table = sums([1, 1, 1], [0.1] * 3, [-3.0] * 3, [[30.0], [0.0], [1e9]], [[99.0], [1e9], [1e9]])
    precision = fit_host_priors(table).precision[:, 0]
    np.testing.assert_allclose(precision, [30.5 / 100.0, 0.02, 0.995])


def test_sums_add_over_shards_and_skip_uncrawled_pages():
    rng = np.random.default_rng(2)
    rings = (
        rng.exponential(1.0, (8, 4)),
        rng.poisson(1.0, (8, 4, 1)).astype(np.uint16),
        rng.integers(0, 2, (8, 4)).astype(np.uint8),
        np.array([0, 1, 2, 3, 4, 5, 0, 9]),
    )
    columns = (rng.gamma(1.0, 1.0, 8), rng.gamma(1.0, 1.0, (8, 1)), rng.gamma(1.0, 1.0, 8) + 0.1)
    hosts = np.array([0, 0, 1, 1, 2, 2, 0, 1])
    whole = host_sums(np.arange(8), hosts, 3, *columns, *rings, initial_host_priors(3, 1))
    parts = [
        host_sums(np.array(p), hosts, 3, *columns, *rings, initial_host_priors(3, 1))
        for p in ([0, 1, 6], [2, 3, 4, 5, 7])
    ]
    for field, first, second in zip(whole, *parts, strict=True):
        np.testing.assert_allclose(field, first + second)
    assert whole.pages.tolist() == [1.0, 3.0, 2.0]


def test_credit_of_a_signal_is_its_probability_given_the_change():
    rings = (
        np.array([[2.0, 1.0]]),
        np.array([[[3], [1]]], dtype=np.uint16),
        np.array([[1, 0]], dtype=np.uint8),
        np.array([2]),
    )
    columns = (np.array([0.1]), np.array([[0.5]]), np.array([1.0]))
    total = host_sums(np.array([0]), np.array([0]), 1, *columns, *rings, initial_host_priors(1, 1))
    truth = -np.expm1(-0.5) / -np.expm1(-(0.2 + 1.5))
    assert total.credited[0, 0] == pytest.approx(3 * truth)
    assert total.signals[0, 0] == 4.0


@pytest.mark.parametrize("pings", [24, 288, 1440])
def test_a_page_that_is_signalled_all_the_time_does_not_speak_for_the_others(pings):
    rng = np.random.default_rng(8)
    pages, depth = 201, 16
    # Each signal of page 1 to 200 tells of a change; those of the home page come by the clock.
    signals = (rng.random((pages, depth, 1)) < 0.06).astype(np.uint16)
    changed = signals[:, :, 0].astype(np.uint8)
    signals[0], changed[0] = pings, rng.random(depth) < 0.3
    rings = (np.ones((pages, depth)), signals, changed, np.full(pages, depth))
    priors, owner = initial_host_priors(1, 1), np.zeros(pages, np.int64)
    out = MapColumns(np.zeros(pages), np.zeros((pages, 1)), np.zeros(pages))
    for _ in range(6):
        fit_rings_map(np.arange(pages), owner, *rings, priors, out)
        priors = fit_host_priors(host_sums(np.arange(pages), owner, 1, *out, *rings, priors))

    assert priors.precision[0, 0] > 0.95


def test_a_flood_of_one_page_alone_proves_nothing():
    signals, changed = np.full((1, 16, 1), 288, np.uint16), np.zeros((1, 16), np.uint8)
    rings = (np.ones((1, 16)), signals, changed, np.array([16]))
    priors = initial_host_priors(1, 1)
    out = MapColumns(np.zeros(1), np.zeros((1, 1)), np.zeros(1))
    fit_rings_map(np.zeros(1, np.int64), np.zeros(1, np.int64), *rings, priors, out)
    sums_of = host_sums(np.array([0]), np.array([0]), 1, *out, *rings, priors)

    precision = fit_host_priors(sums_of).precision[0]

    assert sums_of.signals[0, 0] == pytest.approx(5.0)
    assert not trusts_bursts(np.array([16 * 288.0]), precision)


def test_recovers_the_population_of_two_hosts():
    rng = np.random.default_rng(3)
    pages, depth, hosts = 3000, 16, 2
    owner = np.arange(pages) % hosts
    true_shape, true_mean = np.array([0.8, 4.0]), np.array([0.05, 0.6])
    true_precision = np.array([0.9, 0.3])
    alpha = gamma.rvs(true_shape[owner], random_state=rng) * (true_mean / true_shape)[owner]
    kappa = -np.log1p(-true_precision[owner])
    intervals = rng.exponential(3.0, (pages, depth))
    signals = rng.poisson(0.1 * intervals).astype(np.uint16)
    exponent = alpha[:, None] * intervals + kappa[:, None] * signals
    changed = (rng.random((pages, depth)) < -np.expm1(-exponent)).astype(np.uint8)
    rings = (intervals, signals, changed, np.full(pages, depth))
    priors: HostPriors = initial_host_priors(hosts, 1)
    out = MapColumns(np.zeros(pages), np.zeros((pages, 1)), np.zeros(pages))
    for _ in range(8):
        fit_rings_map(np.arange(pages), owner, *rings, priors, out)
        priors = fit_host_priors(host_sums(np.arange(pages), owner, hosts, *out, *rings, priors))
    np.testing.assert_allclose(priors.shape / priors.rate, true_mean, rtol=0.15)
    np.testing.assert_allclose(priors.shape, true_shape, rtol=0.5)
    # Pages that change between most crawls say little about the second host's signals.
    np.testing.assert_allclose(priors.precision[:, 0], true_precision, atol=0.2)


def test_priors_of_pages_with_few_records_settle_in_a_few_rounds():
    rng = np.random.default_rng(4)
    pages = 2000
    alpha = gamma.rvs(0.6, scale=0.002 / 0.6, size=pages, random_state=rng)
    intervals = rng.exponential(20.0, (pages, 1))
    changed = (rng.random((pages, 1)) < -np.expm1(-alpha[:, None] * intervals)).astype(np.uint8)
    nothing = np.zeros((pages, 1), np.uint16)
    rings = (intervals, nothing, changed, np.ones(pages, np.int64))
    priors, means = initial_host_priors(1, 1), []
    out = MapColumns(np.zeros(pages), np.zeros((pages, 1)), np.zeros(pages))
    owner = np.zeros(pages, np.int64)
    for _ in range(40):
        fit_rings_map(np.arange(pages), owner, *rings, priors, out)
        priors = fit_host_priors(host_sums(np.arange(pages), owner, 1, *out, *rings, priors))
        means.append(float(priors.shape[0] / priors.rate[0]))
    assert means[-1] == pytest.approx(0.002, rel=0.4)
    assert means[4] == pytest.approx(means[-1], rel=0.2)


def settled(owner, hosts, *records):
    """Priors of hosts after some rounds, and their pages by them."""
    pages = owner.size
    rings = (*records, np.full(pages, records[0].shape[1]))
    priors = initial_host_priors(hosts, 1)
    out = MapColumns(np.zeros(pages), np.zeros((pages, 1)), np.zeros(pages))
    for _ in range(6):
        fit_rings_map(np.arange(pages), owner, *rings, priors, out)
        priors = fit_host_priors(host_sums(np.arange(pages), owner, hosts, *out, *rings, priors))
    fit_rings_map(np.arange(pages), owner, *rings, priors, out)
    return priors, out


def test_signals_that_say_nothing_are_left_out_and_true_ones_are_not():
    rng = np.random.default_rng(6)
    pages, depth = 1500, 6
    owner = np.arange(pages) % 2
    alpha = gamma.rvs(1.0, scale=0.01, size=pages, random_state=rng)
    intervals = rng.exponential(15.0, (pages, depth))
    signals = rng.poisson(0.01 * intervals).astype(np.uint16)
    exponent = alpha[:, None] * intervals + np.where(owner == 1, 0.5, 0.0)[:, None] * signals
    changed = (rng.random((pages, depth)) < -np.expm1(-exponent)).astype(np.uint8)
    priors, out = settled(owner, 2, intervals, signals, changed)
    assert priors.precision[0, 0] == LOWEST_PRECISION
    assert out.signal_evidence[owner == 0] == pytest.approx(LOWEST_PRECISION, rel=1e-3)
    assert priors.precision[1, 0] == pytest.approx(-np.expm1(-0.5), abs=0.12)


@pytest.mark.parametrize("free", [0.0, 0.1])
def test_signals_that_nearly_all_records_have_are_not_judged_by_what_they_announced(free):
    """As where pages are crawled when they are signalled: what is found then is the signals' own
    merit, and foretells the next one as well as they do."""
    rng = np.random.default_rng(7)
    pages, depth, precision = 2000, 8, 0.3
    intervals = np.full((pages, depth), 5.0)
    signals = (rng.random((pages, depth)) >= free).astype(np.uint16)
    changed = ((rng.random((pages, depth)) < precision) & (signals > 0)).astype(np.uint8)
    priors, out = settled(np.zeros(pages, np.int64), 1, intervals, signals, changed)
    assert priors.precision[0, 0] > 0.2
    assert np.median(out.signal_evidence) > 0.05


def test_of_what_is_hardly_ever_without_signals_nothing_is_said():
    """... and they are not proved to say something either."""
    rng = np.random.default_rng(8)
    pages, depth = 2000, 8
    intervals, signals = np.full((pages, depth), 5.0), np.ones((pages, depth), np.uint16)
    changed = (rng.random((pages, depth)) < 0.3).astype(np.uint8)
    owner, rings = np.zeros(pages, np.int64), (intervals, signals, changed)
    priors, out = settled(owner, 1, *rings)
    count = np.full(pages, depth)
    sums = host_sums(np.arange(pages), owner, 1, *out, *rings, count, priors)
    assert sums.room[0, 0] == 0.0
    assert signal_verdicts(sums)[0, 0] == UNDECIDED


def test_bad_start_is_refused():
    with pytest.raises(ValueError, match="must be positive"):
        initial_host_priors(1, 1, change_rate=-1.0)
