"""Populations of the papers, and their events: traces whose parameters are known."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.replay.trace import Trace, population_trace
from shared.policy.model import PageParameters

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PaperPopulation:
    """The instances of [N] section 6.1: μ and Δ uniform on [0, 1], recall Beta, ν uniform."""

    pages: int
    recall: tuple[float, float] | None = (0.25, 0.25)
    """Parameters of the Beta distribution; None: no signals."""
    false_signals: tuple[float, float] = (0.1, 0.6)
    """Bounds of ν, per day."""

    def parameters(self, rng: np.random.Generator) -> PageParameters:
        """Draw the pages."""
        importance, change_rate = rng.random(self.pages), rng.random(self.pages)
        if self.recall is None:
            return PageParameters.from_rates(importance, change_rate, 0.0, 0.0)
        recall = rng.beta(*self.recall, self.pages)
        noise = rng.uniform(*self.false_signals, self.pages)
        return PageParameters.from_rates(importance, change_rate, recall, noise)


def heavy_tailed(pages: int, complete_share: float, rng: np.random.Generator) -> PageParameters:
    """The published shape of [K]'s dataset: most pages change once in a few days, importance is
    heavy-tailed below 1000, and a few pages have complete signals ([K] supplement, figures 4–6).
    """
    importance = np.minimum((1.0 + rng.pareto(1.1, pages)) * 10.0, 1000.0)
    change_rate = np.clip(rng.lognormal(np.log(0.3), 1.0, pages), 5e-4, 7.0)
    complete = rng.random(pages) < complete_share
    return PageParameters.from_rates(importance, change_rate, complete.astype(float), 0.0)


def make_trace(
    parameters: PageParameters,
    days: float,
    rng: np.random.Generator,
    delays: Callable[[int], Floats] | None = None,
) -> Trace:
    """Poisson changes and signals of these pages over `days`.

    `delays` draws how many days later than their changes so many signals come; absent: at once.
    """
    change_days, change_pages = _poisson(parameters.change_rate, days, rng)
    told = rng.random(change_days.size) < parameters.recall[change_pages]
    true_days, true_pages = change_days[told], change_pages[told]
    if delays is not None:
        true_days = true_days + delays(true_days.size)
    false_days, false_pages = _poisson(parameters.false_signal_rate, days, rng)
    signal_days = np.concatenate([true_days, false_days])
    signal_pages = np.concatenate([true_pages, false_pages])
    order = np.argsort(signal_days, kind="stable")
    order = order[signal_days[order] <= days]
    return population_trace(
        parameters.importance,
        change_days,
        change_pages,
        signal_days[order],
        signal_pages[order],
        days,
        parameters,
    )


def _poisson(
    rates: Floats, days: float, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Events of all pages over `days`, in order of time."""
    counts = rng.poisson(rates * days)
    pages = np.repeat(np.arange(rates.size), counts)
    times = rng.random(pages.size) * days
    order = np.argsort(times)
    return times[order], pages[order]
