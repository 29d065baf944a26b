"""What learning costs where rates lie five decades apart: staleness over that of an oracle.

Rates are lognormal around one change in a month, 98 of 100 within five decades. Hosts are alike, so
a page's host says next to nothing of it; there are no signals, and all pages are equally important.
The oracle has the true rates and the same calendar.
"""

from dataclasses import replace

import numpy as np

from services.replay.experiments.results import Figure, Scale, Told, summarised
from services.replay.generated import make_trace
from services.replay.policies import replay_policy
from services.replay.slots import Budget
from services.replay.trace import NO_LIMIT, Trace
from shared.policy.model import PageParameters

PAGES, HOSTS, DAYS = 2000, 20, 60.0
MIDDLE_RATE, SIGMA = 0.03, 2.5
"""Of the lognormal law, changes a day."""
CRAWLS_A_PAGE = (0.125, 0.25, 0.5, 1.0)
"""And day."""


def wide_rates(scale: Scale, told: Told, pages: int = PAGES, days: float = DAYS) -> Figure:
    """Staleness of the production policy over the oracle's, by budget."""
    found = np.empty((scale.repetitions, len(CRAWLS_A_PAGE)))
    for repetition in range(scale.repetitions):
        trace = draw_wide(pages, days, scale.rng(repetition, 35))
        for column, share in enumerate(CRAWLS_A_PAGE):
            budget = Budget.constant(share * pages)
            learned, oracle = (
                replay_policy(trace, budget, "freshet", oracle=known).books.staleness
                for known in (False, True)
            )
            found[repetition, column] = learned / oracle
        told((repetition + 1) / scale.repetitions)
    budgets = [share * pages for share in CRAWLS_A_PAGE]
    return Figure(
        "estimator-wide-rates",
        "What learning costs over five decades of rates",
        "crawls a day",
        "staleness over the oracle's",
        "lines",
        [summarised("freshet", budgets, found)],
        f"{pages} pages, {HOSTS} hosts, {days:g} days, no signals",
    )


def draw_wide(pages: int, days: float, rng: np.random.Generator) -> Trace:
    """The pages' changes, hosts taking turns; no host has a limit."""
    rate = rng.lognormal(np.log(MIDDLE_RATE), SIGMA, pages)
    trace = make_trace(PageParameters.from_rates(np.ones(pages), rate, 0.0, 0.0), days, rng)
    return replace(
        trace,
        host=np.arange(pages) % HOSTS,
        site=np.arange(HOSTS),
        host_names=tuple(f"host{number}.example" for number in range(HOSTS)),
        host_limit=np.full(HOSTS, NO_LIMIT),
    )
