"""[K] figures 1, 2 and 3: harmonic and binary costs of crawl rates, and how fast they are learned.

On pages drawn from the dataset, or on generated populations with its published shape; R = 20 % of
pages a day. Costs are of the rates, by [K] propositions 1 and 4 and equations 12 and 13, a page.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from services.replay.by_rate import RatePolicy, run_by_rate
from services.replay.experiments.results import Figure, Scale, Told, summarised
from services.replay.generated import heavy_tailed, make_trace
from services.replay.policies import POLICIES
from services.replay.slots import Budget
from shared.policy.lambdacrawl.binary import binary_lambda_crawl, binary_lambda_crawl_with_floor
from shared.policy.lambdacrawl.costs import binary_cost, harmonic_cost
from shared.policy.lambdacrawl.harmonic import (
    lambda_crawl,
    lambda_crawl_approximate,
    lambda_crawl_complete,
    lambda_crawl_incomplete,
)
from shared.policy.lambdacrawl.heuristics import change_rate_crawl, uniform_crawl
from shared.policy.model import PageParameters

BANDWIDTH_SHARE = 0.2
COMPLETE_SHARE = 0.04
"""Of pages with complete signals."""

LEARNING_DAYS = 21

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Solver = Callable[[Floats, Floats, Mask, float], Floats]

RATES: dict[str, Solver] = {
    "LC": lambda w, d, c, r: lambda_crawl(w, d, c, r).rates,
    "LCA": lambda w, d, c, r: lambda_crawl_approximate(w, d, c, r).rates,
    "BLCε": lambda w, d, _, r: binary_lambda_crawl_with_floor(w, d, r).rates,
    "BLC": lambda w, d, _, r: binary_lambda_crawl(w, d, r).rates,
    "CC": lambda _w, d, _c, r: change_rate_crawl(d, r),
    "UC": lambda w, _d, _c, r: uniform_crawl(w.size, r),
}
HEEDING = ("LC", "LCA", "LC-CO")
"""Policies that heed complete signals; for the others they do not exist."""


def _population(
    scale: Scale, rng: np.random.Generator, *, only_complete: bool = False
) -> PageParameters:
    """The pages of a repetition."""
    if scale.dataset is not None:
        return scale.dataset.sample(scale.pages, rng, only_complete=only_complete)
    return heavy_tailed(scale.pages, 1.0 if only_complete else COMPLETE_SHARE, rng)


def _notes(scale: Scale) -> str:
    if scale.dataset is None:
        return f"{scale.pages} pages of a generated population with the published shape"
    return f"{scale.pages} pages drawn from {len(scale.dataset)} of the dataset PoliteCrawling"


def _costs(
    label: str, solver: Solver, pages: PageParameters, complete: Mask, bandwidth: float
) -> tuple[float, float]:
    """(J_h, J_b) a page."""
    seen = complete if label in HEEDING else np.zeros_like(complete)
    weight, changes = pages.importance, pages.change_rate
    rates = solver(weight, changes, seen, bandwidth)
    count = weight.size
    return (
        harmonic_cost(weight, changes, rates, seen) / count,
        binary_cost(weight, changes, rates, seen) / count,
    )


def _bars(
    figure: Figure, solvers: dict[str, Solver], only_complete: bool, scale: Scale, told: Told
) -> Figure:
    found = np.empty((2, scale.repetitions, len(solvers)))
    for repetition in range(scale.repetitions):
        pages = _population(scale, scale.rng(repetition, 1), only_complete=only_complete)
        complete = pages.recall > 0.5
        for column, (label, solver) in enumerate(solvers.items()):
            bandwidth = BANDWIDTH_SHARE * scale.pages
            found[:, repetition, column] = _costs(label, solver, pages, complete, bandwidth)
        told((repetition + 1) / scale.repetitions)
    for label, values in zip(("harmonic cost", "binary cost"), found, strict=True):
        figure.series.append(summarised(label, list(solvers), values))
    return figure


def _cost_figure(name: str, title: str, scale: Scale) -> Figure:
    label = "cost a page (lower is better)"
    return Figure(name, title, "policy", label, "bars", [], _notes(scale))


def figure_1(scale: Scale, told: Told) -> Figure:
    """Both costs of all policies with known change rates; BLC's harmonic cost is infinite."""
    figure = _cost_figure("k1", "[K] figure 1: costs with known change rates", scale)
    return _bars(figure, RATES, False, scale, told)


def figure_2(scale: Scale, told: Told) -> Figure:
    """Only pages with complete signals: heeding them (LC-CO) against not (the others)."""
    solvers: dict[str, Solver] = {
        "LC-CO": lambda w, d, _, r: lambda_crawl_complete(w, d, r).rates,
        "LC-IO": lambda w, d, _, r: lambda_crawl_incomplete(w, d, r).rates,
        "BLCε": RATES["BLCε"],
        "BLC": RATES["BLC"],
    }
    figure = _cost_figure("k2", "[K] figure 2: the benefit of complete signals", scale)
    return _bars(figure, solvers, True, scale, told)


def figure_3(scale: Scale, told: Told) -> Figure:
    """Harmonic cost by day while change rates are learned, epochs of a day."""
    names = ("LLC", "LLCA", "BLLCε")
    days = list(range(LEARNING_DAYS))
    found = np.empty((len(names), scale.repetitions, LEARNING_DAYS))
    bandwidth = BANDWIDTH_SHARE * scale.pages
    slots = Budget.constant(bandwidth).slot_times(LEARNING_DAYS)
    for repetition in range(scale.repetitions):
        rng = scale.rng(repetition, 3)
        pages = _population(scale, rng)
        trace = make_trace(pages, LEARNING_DAYS, rng)
        for row, name in enumerate(names):
            policy = POLICIES[name]
            if not isinstance(policy, RatePolicy):
                raise TypeError(f"{name} is not a policy of rates")
            seen = (pages.recall > 0.5) & policy.heeds_signals

            told_cost = _recorder(found[row, repetition], pages, seen)
            run_by_rate(trace, slots, policy, scale.seed + repetition, 1.0, told_cost)
        told((repetition + 1) / scale.repetitions)
    series = [summarised(name, days, values) for name, values in zip(names, found, strict=True)]
    title = "[K] figure 3: learning the change rates"
    return Figure("k3", title, "days", "harmonic cost a page", "lines", series, _notes(scale))


def _recorder(
    costs: Floats, pages: PageParameters, complete: Mask
) -> Callable[[float, Floats], None]:
    """Writes the harmonic cost a page of each day's rates to `costs`."""

    def record(day: float, rates: Floats) -> None:
        # Learned rates may exceed what signals allow; each signal is crawled once at most.
        possible = np.where(complete, np.minimum(rates, pages.change_rate), rates)
        total = harmonic_cost(pages.importance, pages.change_rate, possible, complete)
        costs[round(day)] = total / len(pages)

    return record
