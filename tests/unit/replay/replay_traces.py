"""Small traces for the tests of the lab."""

import numpy as np

from services.replay.generated import PaperPopulation, make_trace
from services.replay.trace import Trace, population_trace


def paper_trace(
    pages: int = 60,
    days: float = 60.0,
    seed: int = 1,
    recall: tuple[float, float] | None = (0.25, 0.25),
) -> Trace:
    """A population of [N] section 6.1 with its events."""
    rng = np.random.default_rng(seed)
    population = PaperPopulation(pages, recall)
    return make_trace(population.parameters(rng), days, rng)


def hand_made(changes: list[tuple[float, int]], pages: int = 2, days: float = 10.0) -> Trace:
    """A trace of pages of importance 1, 2, 3, … without signals."""
    times = np.array([day for day, _ in changes])
    owners = np.array([page for _, page in changes], dtype=np.int64)
    return population_trace(
        np.arange(1.0, pages + 1), times, owners, np.empty(0), np.empty(0, np.int64), days
    )
