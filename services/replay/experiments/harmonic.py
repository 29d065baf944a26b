"""The harmonic objective against LambdaCrawl [K]: costs of simulated changes, and who starves.

All policies know the pages' parameters and spend the same budget, a crawl a day for every five
pages. LambdaCrawl crawls at random times of the optimal rates; the harmonic crawl value has the
same objective and chooses the times. A page *starves* if it changed in the first half of the run
and was never crawled.
"""

from collections.abc import Callable

import numpy as np

from services.replay.books import Books
from services.replay.experiments.results import Figure, Scale, Told, summarised
from services.replay.generated import PaperPopulation, heavy_tailed, make_trace
from services.replay.policies import replay_policy
from services.replay.slots import Budget
from shared.policy.model import PageParameters

PAGES, DAYS, BANDWIDTH_SHARE = 2000, 200.0, 0.2

REFERENCE = "LC"
POLICIES = ("freshet-harmonic", "freshet")

Draw = Callable[[int, np.random.Generator], PageParameters]


def _complete(parameters: PageParameters) -> PageParameters:
    """The same pages, each change of which sends a signal."""
    return PageParameters.from_rates(parameters.importance, parameters.change_rate, 1.0, 0.0)


POPULATIONS: dict[str, Draw] = {
    "[K] shape, no signals": lambda count, rng: heavy_tailed(count, 0.0, rng),
    "[N] uniform, no signals": lambda count, rng: PaperPopulation(count, None).parameters(rng),
    "[K] shape, complete signals": lambda count, rng: heavy_tailed(count, 1.0, rng),
    "[N] uniform, complete signals": lambda count, rng: _complete(
        PaperPopulation(count, None).parameters(rng)
    ),
}
"""Name → (pages, rng) → parameters."""


def starving_share(books: Books) -> float:
    """Share of pages that changed in the first half of the run and were never crawled."""
    trace = books.trace
    early = trace.change_pages[trace.change_days <= 0.5 * trace.days]
    changed = np.bincount(early, minlength=len(trace)) > 0
    return float((changed & (books.crawls == 0)).mean())


def harmonic_figure(scale: Scale, told: Told, pages: int = PAGES, days: float = DAYS) -> Figure:
    """Harmonic cost over LambdaCrawl's, and the share of pages that starve."""
    labels = [f"{name}: harmonic cost over {REFERENCE}'s" for name in POLICIES]
    labels += [f"{name}: share of pages that starve" for name in (*POLICIES, REFERENCE)]
    found = np.empty((len(labels), scale.repetitions, len(POPULATIONS)))
    for column, draw in enumerate(POPULATIONS.values()):
        for repetition in range(scale.repetitions):
            rng = scale.rng(repetition, column, 21)
            trace = make_trace(draw(pages, rng), days, rng)
            budget = Budget.constant(BANDWIDTH_SHARE * pages)
            books = {
                name: replay_policy(
                    trace, budget, name, seed=scale.seed + repetition, oracle=True
                ).books
                for name in (*POLICIES, REFERENCE)
            }
            cost = books[REFERENCE].harmonic_cost
            found[:, repetition, column] = [
                *(books[name].harmonic_cost / cost for name in POLICIES),
                *(starving_share(books[name]) for name in (*POLICIES, REFERENCE)),
            ]
            told((column + (repetition + 1) / scale.repetitions) / len(POPULATIONS))
    series = [
        summarised(label, list(POPULATIONS), values)
        for label, values in zip(labels, found, strict=True)
    ]
    notes = f"{pages} pages, {days:g} days, {BANDWIDTH_SHARE:g} crawls a page and day"
    title = "The harmonic objective against LambdaCrawl, on simulated changes"
    return Figure("harmonic", title, "population", "share", "bars", series, notes)
