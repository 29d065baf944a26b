"""What single pages of a shard ask for under each threshold of a grid, crawls per day."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.hosts import Objectives, objective_of
from services.scheduler.state.rows import ACTIVE, Rows
from shared.contracts.objectives import FRESHNESS
from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import change_rate_scalar
from shared.policy.kernels.demand import threshold_rates
from shared.policy.objectives import objective_rates, rarest_value_scalar
from shared.units import SECONDS_PER_DAY


@compiled
def rates_one_by_one(
    pages: Rows,
    thresholds: NDArray[np.float64],
    rates: NDArray[np.float64],
    reached: NDArray[np.int64],
) -> None:
    """As `rates_by_tables`, but exact."""
    for row in range(pages.size):
        page = pages[row]
        importance = np.float64(page.importance)
        alpha, kappa, gamma = np.float64(page.alpha), np.float64(page.kappa), np.float64(page.gamma)
        reached[row] = 0
        if importance > 0.0:
            reached[row] = threshold_rates(importance, alpha, kappa, gamma, thresholds, rates[row])


@compiled
def rates_of_others(
    pages: Rows,
    objectives: Objectives | None,
    thresholds: NDArray[np.float64],
    rates: NDArray[np.float64],
    reached: NDArray[np.int64],
) -> None:
    """Find anew the rates of the pages that are crawled for something else than freshness."""
    if objectives is None:
        return
    for row in range(pages.size):
        page = pages[row]
        objective, importance = objective_of(page, objectives), np.float64(page.importance)
        if objective == FRESHNESS or not importance > 0.0:
            continue
        alpha, kappa, gamma = np.float64(page.alpha), np.float64(page.kappa), np.float64(page.gamma)
        reached[row] = objective_rates(
            objective, importance, alpha, kappa, gamma, thresholds, rates[row]
        )


@compiled
def raise_to_bound(max_age: float, rates: NDArray[np.float64], reached: int) -> int:
    """A page with a bound is crawled as often as that asks for, under whatever threshold."""
    rates[reached:] = 0.0
    for point in range(rates.size):
        rates[point] = max(rates[point], SECONDS_PER_DAY / max_age)
    return rates.size


@compiled
def highest_value(pages: Rows, objectives: Objectives | None) -> float:
    """The highest crawl value that one of the pages can have, or is asked for by."""
    highest = 0.0
    for row in range(pages.size):
        page = pages[row]
        if page.status != ACTIVE:
            continue
        alpha, kappa, gamma = np.float64(page.alpha), np.float64(page.kappa), np.float64(page.gamma)
        objective = objective_of(page, objectives)
        if objective == FRESHNESS:
            rate = change_rate_scalar(alpha, kappa, gamma)
            if rate > 0.0:
                highest = max(highest, page.importance / rate)
        else:
            unit = rarest_value_scalar(objective, alpha, kappa, gamma)
            highest = max(highest, page.importance * unit)
    return highest
