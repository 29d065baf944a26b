"""Objectives by their codes: inverses, demand, and the worth of signals."""

import numpy as np
import pytest

from shared.contracts.objectives import FRESHNESS, HARMONIC, objective_code, objective_name
from shared.policy.harmonic import harmonic_penalty, harmonic_value
from shared.policy.objectives import (
    objective_due_days,
    objective_rates,
    objective_signal_worth,
    objective_threshold_scalar,
    objective_values,
    rarest_value_scalar,
)
from shared.policy.polls import signal_worth
from shared.policy.value import crawl_value

OTHERS = [HARMONIC, 1, 30, 100]
PAGES = [(0.3, 0.0, 0.0), (0.3, 0.9, 0.5), (0.02, 3.0, 1.5), (0.05, 0.1, 3.0), (0.0, 1.2, 0.4)]
GRID = 10.0 ** (np.arange(-24, 12) / 8)


def test_objectives_are_told_apart_by_a_byte():
    told = ["freshness", "harmonic", {"age": 0.3}, {"age": 1.0}, {"age": 0}]
    codes = [objective_code(one) for one in told]
    assert codes == [0, 255, 30, 100, 0]
    assert [objective_name(code) for code in codes[:3]] == ["freshness", "harmonic", "age 0.3"]


def test_values_are_those_of_each_objective():
    state = (2.0, 0.3, 0.9, 0.5, 2.2, 2.0)
    assert objective_values(FRESHNESS, *state)[0] == crawl_value(*state)[0]
    assert objective_values(HARMONIC, *state)[0] == harmonic_value(*state)[0]
    # A little age is nearly freshness; with a page that was never crawled there is no age yet.
    assert objective_values(1, *state)[0] == pytest.approx(crawl_value(*state)[0], rel=0.1)
    never = (2.0, 0.3, 0.9, 0.5, np.inf, 0.0)
    for objective in (FRESHNESS, *OTHERS):
        assert objective_values(objective, *never)[0] == crawl_value(*never)[0]


@pytest.mark.parametrize("objective", [FRESHNESS, *OTHERS])
@pytest.mark.parametrize("page", PAGES[:4])
def test_a_page_is_due_when_its_value_reaches_the_threshold(objective, page):
    for signals in (0.0, 1.0, 2.5):
        if signals and not page[2]:
            continue
        highest = float(objective_values(FRESHNESS, 2.0, *page, np.inf, 0.0)[0])
        threshold = 0.8 * highest
        days = float(objective_due_days(objective, 2.0, *page, threshold, signals)[0])
        at = float(objective_values(objective, 2.0, *page, days, signals)[0])
        assert at >= threshold * (1 - 1e-9)
        assert days == 0.0 or at == pytest.approx(threshold, rel=1e-7)


@pytest.mark.parametrize("objective", OTHERS)
@pytest.mark.parametrize("page", PAGES)
def test_demand_is_one_crawl_in_the_time_between_crawls(objective, page):
    rates = np.zeros(GRID.size)
    assert objective_rates(objective, 2.0, *page, GRID, rates) == GRID.size
    targets = GRID / 2.0
    exact = [1.0 / objective_threshold_scalar(objective, *page, target)[1] for target in targets]
    assert np.median(np.abs(rates / exact - 1)) < 1e-3
    # Where it begins to wait for one signal more, a page's own rate is uncertain by that one.
    assert rates == pytest.approx(np.array(exact), rel=0.55)
    assert (np.diff(rates) <= 1e-9).all()


@pytest.mark.parametrize("objective", OTHERS)
def test_nobody_is_given_up(objective):
    for page in PAGES:
        reached = rarest_value_scalar(objective, *page)
        _, psi = objective_threshold_scalar(objective, *page, 100.0 * reached)
        assert np.isfinite(psi)
    rates = np.zeros(GRID.size)
    assert objective_rates(objective, 2.0, 0.0, 0.0, 0.0, GRID, rates) == 0


def test_the_worth_of_a_signal_is_what_its_page_costs_more():
    alpha, kappa, gamma, price = 0.2, 0.8, 0.4, 0.7
    precision = -np.expm1(-kappa)
    change_rate = alpha + gamma * precision
    found = objective_signal_worth(HARMONIC, 3.0, alpha, kappa, gamma, price)[0]
    due, _ = objective_threshold_scalar(HARMONIC, change_rate, 0.0, 0.0, price / 3.0)
    places = due * (np.arange(20_000) + 0.5) / 20_000
    at, limit = (harmonic_penalty(1.0, 0.0, x, 0) for x in (places + precision, due))
    assert found == pytest.approx(3.0 * np.maximum(at - limit, 0.0).mean(), rel=1e-5)
    fresh = signal_worth(3.0, alpha, kappa, gamma, price)[0]
    assert signal_worth(3.0, alpha, kappa, gamma, price, HARMONIC)[0] == found
    little = signal_worth(3.0, alpha, kappa, gamma, price, 1)[0]
    assert little == pytest.approx(fresh, rel=0.05)
