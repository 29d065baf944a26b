"""The production fit of a page against scipy and closed forms, in both layouts, on simulations."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import gamma

from shared.policy.estimation.host_priors import HostPriors, initial_host_priors
from shared.policy.estimation.map_fit import (
    MapColumns,
    fit_histories_map,
    fit_rings_map,
)
from shared.policy.estimation.map_kernel import TAIL

PRIORS = HostPriors(
    np.array([0.5, 2.0, 8.0]),
    np.array([30.0, 4.0, 2.0]),
    np.array([[0.5, 0.2], [0.9, 0.5], [0.02, 0.995]]),
)


def random_rings(pages: int, depth: int, sources: int, seed: int):
    rng = np.random.default_rng(seed)
    return (
        rng.exponential(1.0, (pages, depth)).astype(np.float32),
        rng.poisson(0.5, (pages, depth, sources)).astype(np.uint16),
        rng.integers(0, 2, (pages, depth)).astype(np.uint8),
        rng.integers(0, 30, pages).astype(np.int64),
    )


def empty_columns(pages: int, sources: int) -> MapColumns:
    return MapColumns(np.full(pages, -1.0), np.full((pages, sources), -1.0), np.full(pages, -1.0))


def negative_log_posterior(theta, t, n, z, host, weight):
    """Straight from the text: one page's −log posterior in (α, κ_1 … κ_K)."""
    alpha, kappa = theta[0], np.asarray(theta[1:])
    p = PRIORS.precision[host]
    knee = (PRIORS.shape[host] + TAIL) / PRIORS.rate[host]
    prior = PRIORS.shape[host] * np.log(alpha) - PRIORS.rate[host] * min(alpha, knee)
    prior -= (PRIORS.shape[host] + TAIL) * np.log(max(alpha / knee, 1.0))
    prior += weight * (p * np.log(-np.expm1(-kappa)) - (1 - p) * kappa).sum()
    s = alpha * t + n @ kappa
    return -(prior + np.where(z, np.log(-np.expm1(-np.maximum(s, 1e-300))), -s).sum())


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_agrees_with_a_general_optimiser(weight):
    pages = 30
    intervals, signals, changed, count = random_rings(pages, 12, 2, seed=5)
    hosts = np.arange(pages) % 3
    out = empty_columns(pages, 2)
    fit_rings_map(np.arange(pages), hosts, intervals, signals, changed, count, PRIORS, out, weight)
    for page in range(pages):
        kept = min(count[page], 12)
        data = (
            intervals[page, :kept].astype(float),
            signals[page, :kept].astype(float),
            changed[page, :kept].astype(bool),
            hosts[page],
            weight,
        )
        mode = [out.unsignalled_change_rate[page], *out.signal_evidence[page]]
        ours = negative_log_posterior(mode, *data)
        theirs = minimize(
            lambda logs, data=data: negative_log_posterior(np.exp(logs), *data),
            np.log(mode) + 0.3,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000},
        )
        assert ours <= theirs.fun + 1e-9
        np.testing.assert_allclose(np.exp(theirs.x), mode, rtol=1e-4)


def test_posterior_shape_is_the_curvature_in_the_logarithm_of_the_rate():
    intervals, signals, changed, _ = random_rings(6, 10, 2, seed=6)
    count = np.full(6, 10)
    hosts = np.arange(6) % 3
    out = empty_columns(6, 2)
    fit_rings_map(np.arange(6), hosts, intervals, signals, changed, count, PRIORS, out)
    for page in range(6):
        t, n, z = intervals[page].astype(float), signals[page].astype(float), changed[page] > 0
        mode = [out.unsignalled_change_rate[page], *out.signal_evidence[page]]

        def along(u, mode=mode, t=t, n=n, z=z, host=hosts[page]):
            a = mpmath.e**u * mode[0]
            s = [a * tj + mpmath.fdot(mode[1:], nj.tolist()) for tj, nj in zip(t, n, strict=True)]
            # Near the mode itself: on one side of the knee.
            knee = (PRIORS.shape[host] + TAIL) / PRIORS.rate[host]
            below = PRIORS.shape[host] * u - PRIORS.rate[host] * a
            log_posterior = below if mode[0] <= knee else -TAIL * u
            return log_posterior + sum(
                mpmath.log(-mpmath.expm1(-sj)) if zj else -sj for sj, zj in zip(s, z, strict=True)
            )

        curvature = -float(mpmath.diff(along, 0, 2))
        floor = 0.3 * PRIORS.shape[hosts[page]]
        assert out.posterior_shape[page] == pytest.approx(max(curvature, floor), rel=1e-8)


def test_a_page_without_records_has_its_host_prior():
    rings = random_rings(3, 4, 2, seed=7)[:3]
    out = empty_columns(3, 2)
    fit_rings_map(np.arange(3), np.arange(3), *rings, np.zeros(3, np.int64), PRIORS, out)
    np.testing.assert_allclose(out.unsignalled_change_rate, PRIORS.shape / PRIORS.rate)
    np.testing.assert_allclose(out.signal_evidence, -np.log1p(-PRIORS.precision))
    np.testing.assert_allclose(out.posterior_shape, PRIORS.shape)


def test_quiet_page_without_signals_has_the_conjugate_posterior():
    out = fit_histories_map([3.0, 4.0], [0, 0], [0, 0], [0, 2], np.array([0]), _one_source())
    assert out.unsignalled_change_rate[0] == pytest.approx(0.5 / (30.0 + 7.0), rel=1e-12)
    assert out.posterior_shape[0] == pytest.approx(0.5, rel=1e-12)


def test_layouts_agree_and_other_rows_stay():
    intervals, signals, changed, count = random_rings(9, 6, 3, seed=8)
    priors = initial_host_priors(2, 3)
    hosts = np.arange(9) % 2
    chosen = np.array([8, 2, 5])
    out = empty_columns(9, 3)
    fit_rings_map(chosen, hosts, intervals, signals, changed, count, priors, out)
    for page in chosen:
        kept = min(count[page], 6)
        alone = fit_histories_map(
            intervals[page, :kept],
            signals[page, :kept],
            changed[page, :kept],
            [0, kept],
            hosts[page : page + 1],
            priors,
        )
        assert out.unsignalled_change_rate[page] == alone.unsignalled_change_rate[0]
        assert (out.signal_evidence[page] == alone.signal_evidence[0]).all()
        assert out.posterior_shape[page] == alone.posterior_shape[0]
    assert (np.delete(out.signal_evidence, chosen, axis=0) == -1.0).all()


def test_recovers_rates_and_precisions_of_two_sources():
    rng = np.random.default_rng(9)
    pages, records = 500, 400
    alpha = rng.gamma(2.0, 0.25, pages) + 0.01
    kappa = np.column_stack([rng.uniform(0.5, 2.5, pages), rng.uniform(0.05, 0.3, pages)])
    owner = np.repeat(np.arange(pages), records)
    intervals = rng.exponential(1.0, owner.size)
    signals = rng.poisson(np.array([0.4, 1.0]) * intervals[:, None])
    exponent = alpha[owner] * intervals + (kappa[owner] * signals).sum(axis=1)
    changed = rng.random(owner.size) < -np.expm1(-exponent)
    priors = initial_host_priors(1, 2, change_rate=0.5, shape=2.0)
    out = fit_histories_map(
        intervals,
        signals,
        changed,
        np.arange(pages + 1) * records,
        np.zeros(pages, np.int64),
        priors,
    )
    # κ is uncertain too, so the Gamma posterior of α at fixed κ is a little too narrow.
    covered = gamma.cdf(alpha, out.posterior_shape, scale=alpha_scale(out))
    assert 0.70 < ((covered > 0.05) & (covered < 0.95)).mean() < 0.95
    precision_error = -np.expm1(-out.signal_evidence) + np.expm1(-kappa)
    assert np.abs(precision_error.mean(axis=0)).max() < 0.02
    assert np.sqrt((precision_error**2).mean(axis=0)).max() < 0.15


def alpha_scale(out: MapColumns):
    return out.unsignalled_change_rate / out.posterior_shape


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(0, 60_000), st.integers(0, 60_000), st.booleans()),
        max_size=20,
    ),
    st.floats(0.1, 20),
    st.floats(1e-6, 1e6),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_any_history_and_prior_give_positive_finite_numbers(history, shape, rate, p1, p2):
    priors = HostPriors(np.array([shape]), np.array([rate]), np.array([[p1, p2]]))
    out = fit_histories_map(
        [record[0] for record in history],
        np.array([record[1:3] for record in history], dtype=float).reshape(-1, 2),
        [record[3] for record in history],
        [0, len(history)],
        np.array([0]),
        priors,
    )
    for column in out:
        assert np.isfinite(column).all()
        assert (column > 0).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 15), st.floats(0.01, 100))
def test_one_more_change_raises_the_rate(changes, interval):
    priors = _one_source()
    rates = [
        fit_histories_map(
            [interval] * 16, [0] * 16, [1] * k + [0] * (16 - k), [0, 16], np.array([0]), priors
        ).unsignalled_change_rate[0]
        for k in (changes, changes + 1)
    ]
    assert rates[1] > rates[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"host_index": np.array([5, 0])}, "priors hold 3 hosts"),
        ({"weight": 0.0}, "weight of the signal prior"),
        ({"priors": PRIORS._replace(shape=np.array([np.nan, 1, 1]))}, "host 0: prior shape nan"),
        ({"priors": PRIORS._replace(rate=np.ones(2))}, "need rate"),
        ({"out": empty_columns(2, 1)}, "a row a page, a column a source"),
    ],
)
def test_bad_input_is_named(change, message):
    intervals, signals, changed, count = random_rings(2, 4, 2, seed=1)
    arguments = {
        "pages": np.arange(2),
        "host_index": np.array([0, 1]),
        "intervals": intervals,
        "signals": signals,
        "changed": changed,
        "count": count,
        "priors": PRIORS,
        "out": empty_columns(2, 2),
    }
    with pytest.raises(ValueError, match=message):
        fit_rings_map(**{**arguments, **change})


def _one_source() -> HostPriors:
    return HostPriors(PRIORS.shape, PRIORS.rate, PRIORS.precision[:, :1])
