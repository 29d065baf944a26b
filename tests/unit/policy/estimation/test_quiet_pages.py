"""What is counted of quiet pages, and what is believed of them, beside plain sums."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.policy.estimation.bursts import LEAST_SIGNALS, MOST_REMEMBERED
from shared.policy.estimation.quiet_pages import (
    LEAST_BELIEF,
    PSEUDO_CHANGES,
    QuietPages,
    believed_mean,
    believed_multipliers,
    count_quiet,
    quiet_beliefs,
)

RECORD = np.dtype(
    [("quiet_found", np.float64), ("quiet_predicted", np.float64), ("quiet_belief", np.float64)],
    align=True,
)


def counted(crawls, belief=1.0):
    """E and X after crawls, each with its rate, days and whether it found a change."""
    hosts = np.zeros(1, RECORD)
    hosts["quiet_belief"] = belief
    for rate, days, changed in crawls:
        count_quiet(hosts[0], rate, days, changed)
    return hosts["quiet_found"].item(), hosts["quiet_predicted"].item()


def trusted(hosts, signals=9.0, precision=0.8):
    """Signals and precisions of hosts by four sources."""
    return np.tile([signals, 0.0, 0.0, 0.0], (hosts, 1)), np.full((hosts, 4), precision)


def plainly(found, predicted, sites):
    """Q of hosts whose signals prove true, one after the other."""

    def share(parent, members):
        e, x = sum(found[m] for m in members), sum(predicted[m] for m in members)
        return (5.0 * parent + e) / (5.0 + x)

    every = share(1.0, range(len(found)))
    beliefs = []
    for host, site in enumerate(sites):
        parent = share(every, [m for m, other in enumerate(sites) if other == site])
        beliefs.append(min(max(share(parent, [host]), 0.2), 1.0))
    return beliefs


@pytest.mark.parametrize("belief", [1.0, 0.2])
def test_crawls_are_counted_as_by_hand(belief):
    crawls = [(0.1, 4.0, False), (0.02, 30.0, True), (0.5, 2.0, True), (0.05, 1.0, False)]

    found, predicted = counted(crawls, belief)

    assert predicted == pytest.approx(0.4 + 0.6 + 1.0 + 0.05, rel=1e-12)
    expected = sum(x / (1.0 - math.exp(-x)) for x in (0.6 * belief, belief))
    assert found == pytest.approx(expected, rel=1e-12)


rates = st.one_of(st.just(0.0), st.floats(1e-12, 1e9))
spans = st.one_of(st.sampled_from([0.0, -1.0, math.inf, math.nan]), st.floats(1e-9, 1e9))


@given(st.lists(st.tuples(rates, spans, st.booleans()), max_size=20), st.floats(0.2, 1.0))
def test_whatever_is_counted_is_a_number(crawls, belief):
    found, predicted = counted(crawls, belief)

    assert math.isfinite(found)
    assert math.isfinite(predicted)
    assert predicted >= 0.0
    assert found >= 0.6 * sum(changed for *_, changed in crawls), "three predicted, times least Q"


sums = st.one_of(st.just(0.0), st.floats(1e-300, 1e30))


@st.composite
def some_hosts(draw):
    count = draw(st.integers(1, 12))
    column = st.lists(sums, min_size=count, max_size=count).map(np.array)
    sites = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    return draw(column), draw(column), np.array(sites, np.int64)


@given(some_hosts())
def test_where_signals_prove_true_it_is_what_sums_come_to(hosts):
    found, predicted, sites = hosts

    beliefs = quiet_beliefs(found, predicted, *trusted(found.size), sites)

    np.testing.assert_allclose(beliefs, plainly(found, predicted, sites.tolist()), rtol=1e-9)
    assert ((beliefs >= LEAST_BELIEF) & (beliefs <= 1.0)).all()


@given(some_hosts(), st.sampled_from([(0.0, 0.8), (LEAST_SIGNALS / 100, 1.0), (1e6, 0.05)]))
def test_without_signals_that_prove_true_it_is_exactly_one(hosts, signals):
    found, predicted, sites = hosts

    beliefs = quiet_beliefs(found, predicted, *trusted(found.size, *signals), sites)

    assert (beliefs == 1.0).all()


def test_signals_of_one_host_speak_for_its_site_and_no_other():
    signals = np.array([[9.0, 0, 0, 0], [0.0, 0, 0, 0], [0.0, 0, 0, 0]])
    sums_of = np.zeros(3), np.full(3, 20.0)

    beliefs = quiet_beliefs(*sums_of, signals, np.full((3, 4), 0.8), np.array([0, 0, 1]))

    assert (beliefs[:2] < 0.5).all()
    assert beliefs[2] == 1.0


@pytest.mark.parametrize(
    ("found", "predicted", "belief"),
    [(0.0, 0.0, 1.0), (0.0, 1e12, LEAST_BELIEF), (1e12, 0.0, 1.0), (1e12, 1e12, 1.0)],
)
def test_at_the_edges(found, predicted, belief):
    columns = np.array([found]), np.array([predicted])

    assert quiet_beliefs(*columns, *trusted(1), np.zeros(1, np.int64)) == pytest.approx([belief])


def test_a_host_of_which_nothing_was_seen_is_believed_as_its_site():
    found, predicted = np.array([0.0, 10.0, 0.0]), np.array([0.0, 40.0, 0.0])

    beliefs = quiet_beliefs(found, predicted, *trusted(3), np.array([0, 0, 1]))

    everything = (PSEUDO_CHANGES + 10.0) / (PSEUDO_CHANGES + 40.0)
    assert beliefs[0] == pytest.approx((PSEUDO_CHANGES * everything + 10.0) / 45.0)
    assert beliefs[2] == pytest.approx(everything)


def test_no_hosts_are_believed_nothing():
    assert quiet_beliefs(*np.zeros((2, 0)), *trusted(0), np.zeros(0, np.int64)).size == 0
    assert QuietPages.initial(2).belief.tolist() == [1.0, 1.0]


def test_what_is_told_is_less_of_pages_that_never_changed_alone():
    belief = np.array([1.0, 0.25])
    bursts = np.array([[0.5, 4.0, 3.0, 2.0, 1.0, 0.5]] * 2)

    told = believed_multipliers(bursts, belief)

    assert told[:, 0].tolist() == [0.5, 0.125]
    assert (told[:, 1:] == bursts[:, 1:]).all()
    assert (bursts[:, 0] == 0.5).all()
    assert believed_mean(np.full(2, 0.3), np.full(2, 6.0), belief) == pytest.approx([0.05, 0.0125])


@pytest.mark.parametrize("changed", [False, True])
def test_an_interval_counts_for_three_changes_however_many_are_predicted(changed):
    found, predicted = counted([(355.0, 30.0, changed)])

    assert (found, predicted) == (pytest.approx(3.0 * changed), pytest.approx(3.0))


def test_what_was_counted_for_too_much_is_forgotten_as_crawls_come():
    hosts = np.zeros(1, RECORD)
    hosts["quiet_predicted"], hosts["quiet_belief"] = 2e6, LEAST_BELIEF
    for _ in range(1_000):
        count_quiet(hosts[0], 1.0, 1.0, True)

    assert hosts["quiet_found"][0] / hosts["quiet_predicted"][0] > 0.9


def test_a_host_that_stands_for_millions_speaks_for_no_more_than_it_remembers():
    stored = QuietPages(np.array([4e5, 3.0]), np.array([2e6, 7.0]), np.array([0.2, 0.9]))

    remembered = stored.remembered()

    assert remembered.found.tolist() == [pytest.approx(0.2 * MOST_REMEMBERED), 3.0]
    assert remembered.predicted.tolist() == [pytest.approx(MOST_REMEMBERED), 7.0]
    assert remembered.belief.tolist() == stored.belief.tolist()
