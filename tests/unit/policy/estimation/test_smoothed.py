"""The smoothed maximum likelihood against scipy, in closed cases, in rings, and on simulations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from shared.policy.estimation.smoothed import (
    REMEMBERED_SIGNALS,
    SmoothedColumns,
    fit_histories,
    fit_rings,
    signal_rate_after,
    signal_rates,
)


def simulated(pages: int, records: int, seed: int):
    """Histories of `pages` pages drawn from the model with known (α, κ)."""
    rng = np.random.default_rng(seed)
    alpha = 10 ** rng.uniform(-1.5, 0.5, pages)
    kappa = rng.uniform(0.1, 3.0, pages)
    owner = np.repeat(np.arange(pages), records)
    intervals = rng.exponential(2.0, owner.size) + 0.01
    signals = rng.poisson(0.7 * intervals)
    exponent = alpha[owner] * intervals + kappa[owner] * signals
    changed = rng.random(owner.size) < -np.expm1(-exponent)
    return alpha, kappa, intervals, signals, changed, np.arange(pages + 1) * records


def smoothed_objective(intervals, signals, changed, weight=0.5):
    """The smoothed negative log-likelihood of one page and its gradient, straight from the text."""
    t = np.concatenate([intervals, [0.5, 0.5, 0.0, 0.0]])
    n = np.concatenate([signals, [0.0, 0.0, 1.0, 1.0]])
    z = np.concatenate([changed, [True, False, True, False]]).astype(bool)
    w = np.concatenate([np.ones(len(intervals) + 2), [weight, weight]])

    def objective(theta):
        s = np.clip(theta[0] * t + theta[1] * n, 1e-300, 700.0)
        slope = w * np.where(z, -1.0 / np.expm1(s), 1.0)
        value = (w * np.where(z, -np.log(-np.expm1(-s)), s)).sum()
        return value, np.array([slope @ t, slope @ n])

    return objective


def test_agrees_with_a_general_optimiser():
    _, _, intervals, signals, changed, offsets = simulated(40, 20, seed=1)
    fit = fit_histories(intervals, signals, changed, offsets)
    for page in range(40):
        rows = slice(offsets[page], offsets[page + 1])
        objective = smoothed_objective(intervals[rows], signals[rows], changed[rows])
        ours = objective([fit.unsignalled_change_rate[page], fit.signal_evidence[page]])
        theirs = minimize(
            objective, [0.5, 0.5], jac=True, method="L-BFGS-B", bounds=[(1e-9, None), (1e-9, 60)]
        )
        assert ours[0] <= theirs.fun + 1e-10
        assert np.abs(ours[1]).max() < 1e-9


def test_standard_errors_are_the_inverse_observed_information():
    _, _, intervals, signals, changed, offsets = simulated(5, 30, seed=2)
    fit = fit_histories(intervals, signals, changed, offsets)
    for page in range(5):
        rows = slice(offsets[page], offsets[page + 1])
        objective = smoothed_objective(intervals[rows], signals[rows], changed[rows])
        mode = np.array([fit.unsignalled_change_rate[page], fit.signal_evidence[page]])
        step = 1e-5 * mode
        hessian = np.array(
            [
                (
                    objective(mode + np.eye(2)[i] * step)[1]
                    - objective(mode - np.eye(2)[i] * step)[1]
                )
                / (2 * step[i])
                for i in range(2)
            ]
        )
        errors = np.sqrt(np.diag(np.linalg.inv(hessian)))
        assert fit.unsignalled_change_rate_error[page] == pytest.approx(errors[0], rel=1e-5)
        assert fit.signal_evidence_error[page] == pytest.approx(errors[1], rel=1e-5)


def test_recovers_the_truth_and_its_own_errors():
    alpha, kappa, intervals, signals, changed, offsets = simulated(400, 2000, seed=3)
    fit = fit_histories(intervals, signals, changed, offsets)
    scores = np.concatenate(
        [
            (fit.unsignalled_change_rate - alpha) / fit.unsignalled_change_rate_error,
            (fit.signal_evidence - kappa) / fit.signal_evidence_error,
        ]
    )
    assert abs(scores.mean()) < 0.15
    assert 0.9 < scores.std() < 1.1


def test_a_page_without_records_or_signals_has_the_pseudo_records_alone():
    fit = fit_histories([], [], [], [0, 0])
    assert fit.unsignalled_change_rate[0] == pytest.approx(np.log(2) / 0.5)
    assert fit.signal_evidence[0] == pytest.approx(np.log(2))


def test_constant_intervals_without_signals_have_a_closed_form():
    # Ten half-day intervals, three changed, and the pseudo-records: 4 of 12 changed.
    changed = [1, 1, 1] + [0] * 7
    fit = fit_histories([0.5] * 10, [0] * 10, changed, [0, 10])
    assert fit.unsignalled_change_rate[0] == pytest.approx(-np.log1p(-4 / 12) / 0.5, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sources", [0, 1, 3])
def test_rings_give_the_same_fit_and_leave_other_pages_alone(dtype, sources):
    rng = np.random.default_rng(4)
    pages, depth = 12, 8
    shape = (pages, depth, sources) if sources else (pages, depth)
    intervals = rng.exponential(1.0, (pages, depth)).astype(dtype)
    signals = rng.poisson(0.5, shape).astype(np.uint16)
    changed = rng.integers(0, 2, (pages, depth)).astype(np.uint8)
    count = rng.integers(0, 20, pages).astype(np.int64)
    out = SmoothedColumns(*[np.full(pages, -1.0) for _ in range(4)])
    fit_rings(np.array([3, 7, 1]), intervals, signals, changed, count, out)
    for page in (3, 7, 1):
        kept = min(count[page], depth)
        expected = fit_histories(
            intervals[page, :kept], signals[page, :kept], changed[page, :kept], [0, kept]
        )
        for column, wanted in zip(out, expected, strict=False):
            assert column[page] == pytest.approx(wanted[0], rel=1e-10)
    assert all((np.delete(column, [3, 7, 1]) == -1.0).all() for column in out)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(0, 60_000), st.booleans()),
        max_size=40,
    )
)
def test_any_history_gives_positive_finite_numbers(history):
    intervals, signals, changed = ([record[field] for record in history] for field in range(3))
    fit = fit_histories(intervals, signals, changed, [0, len(history)])
    for column in fit[:4]:
        assert np.isfinite(column).all()
        assert (column > 0).all()
    assert fit.iterations[0] < 60


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(0, 29), st.floats(0.01, 100))
def test_one_more_change_raises_the_rate(records, changes, interval):
    changes = min(changes, records - 1)
    flags = [1] * changes + [0] * (records - changes)
    more = [1] * (changes + 1) + [0] * (records - changes - 1)
    fit = fit_histories([interval] * records, [0] * records, flags, [0, records])
    higher = fit_histories([interval] * records, [0] * records, more, [0, records])
    assert higher.unsignalled_change_rate[0] > fit.unsignalled_change_rate[0]


def test_signal_rates():
    rates = signal_rates([0, 3], [10, 10])
    assert rates.tolist() == [0.0, 3.5 / 10.5]


def rate_after(events, rate=0.0, watched=0.0):
    """γ after (days since the event before, signals)."""
    for days, signals in events:
        rate = signal_rate_after(rate, watched, days, signals)
        watched += days
    return rate, watched


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1)), max_size=64))
def test_as_long_as_signals_are_few_their_rate_is_that_of_all_of_them(events):
    rate, watched = rate_after(events)

    everything = signal_rates(sum(signals for _, signals in events), watched)
    assert rate == pytest.approx(float(everything), rel=1e-9)


@given(st.floats(0.01, 50), st.floats(1, 500), st.integers(1, 40))
def test_a_silence_is_the_same_to_a_rate_in_however_many_crawls_it_is_seen(rate, days, crawls):
    at_once, _ = rate_after([(days, 0)], rate, 700.0)
    in_parts, _ = rate_after([(days / crawls, 0)] * crawls, rate, 700.0)

    assert in_parts == pytest.approx(at_once, rel=1e-9)


@pytest.mark.parametrize("truth", [0.1, 10.0])
def test_a_source_that_sends_steadily_is_known_with_the_spread_of_what_is_remembered(truth):
    rng = np.random.default_rng(14)
    found, rate, watched = [], 0.0, 0.0
    for gap in rng.exponential(1.0 / truth, 4_000):
        rate, watched = rate_after([(gap, 1)], rate, watched)
        found.append(1.0 / rate)

    assert np.mean(found[100:]) == pytest.approx(1.0 / truth, rel=0.05)
    assert np.std(found[100:]) * truth < 1.3 / math.sqrt(2 * REMEMBERED_SIGNALS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, -2.0], [0, 0], [0, 1], [0, 1, 2]), "page 1, record 1: interval is -2.0"),
        (([1.0], [np.nan], [0], [0, 1]), "page 0, record 0: signals"),
        (([1.0], [0], [2], [0, 1]), "changed is 2"),
        (([1.0], [0, 0], [0], [0, 1]), "one of each"),
        (([1.0], [0], [0], [0, 2]), "offsets must"),
    ],
)
def test_bad_histories_are_named(arguments, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        fit_histories(*arguments)


def test_bad_rings_and_smoothing_are_refused():
    with pytest.raises(ValueError, match="smoothing must be positive"):
        fit_histories([], [], [], [0], pseudo_interval=0.0)
    rings = (np.ones((2, 4)), np.zeros((2, 4)), np.zeros((2, 4), np.uint8), np.zeros(2, np.int64))
    out = SmoothedColumns(*[np.zeros(2) for _ in range(4)])
    with pytest.raises(ValueError, match="hold 2 pages"):
        fit_rings(np.array([2]), *rings, out)
    with pytest.raises(ValueError, match="rings need"):
        fit_rings(np.array([0]), rings[0], np.zeros((2, 5)), rings[2], rings[3], out)
