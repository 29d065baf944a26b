"""What signals and crawls do to a page, and teach the lab's own learner, one at a time, compiled.

The production policies learn by the estimator's own code (`virtual_estimator`); here is the
reference, `estimation.smoothed`.
"""

import numpy as np

from services.replay.columns import PRODUCTION, SMOOTHED, Columns, Hosts
from shared.policy.compiled import compiled
from shared.policy.estimation.smoothed import (
    PSEUDO_INTERVAL,
    PSEUDO_SIGNAL_WEIGHT,
    signal_rate,
)
from shared.policy.estimation.smoothed_kernel import fit_ring_pages
from shared.store.history import DEPTH


@compiled
def take_signal(
    columns: Columns,
    hosts: Hosts,
    learner: int,
    delay_days: float,
    row: int,
    slot: int,
    day: float,
) -> None:
    """Take a signal of page `row` in, from the source in `slot`.

    One within `delay_days` of the last crawl is about what that saw. With the production learner
    one at the time of the last from the same source is left out, as in production; not so one at
    the time of another source's.
    """
    page = columns.pages[row]
    if learner == PRODUCTION and day <= columns.last_signals[row, slot]:
        return
    columns.last_signals[row, slot] = day
    page.all_signals += 1.0
    if day > page.last_crawl + delay_days or not page.held:
        page.signals += hosts.weights[page.host, slot]
        columns.pending[row] += 1.0
    if learner == SMOOTHED:
        # Of PRODUCTION the estimator tells.
        page.gamma = signal_rate(page.all_signals, day - page.born)


@compiled
def learn_from_crawl(columns: Columns, learner: int, row: int, now: float) -> None:
    """Take a crawl of page `row` at day `now` in: record, fit, new state."""
    page = columns.pages[row]
    if learner == SMOOTHED:
        page.gamma = signal_rate(page.all_signals, now - page.born)
    if learner == SMOOTHED and page.held:
        slot = columns.records[row] % DEPTH
        columns.intervals[row, slot] = now - page.last_crawl
        columns.ring_signals[row, slot, 0] = columns.pending[row]
        columns.ring_changed[row, slot] = page.changed
        columns.records[row] += 1
        fit_ring_pages(
            np.full(1, row),
            columns.intervals,
            columns.ring_signals,
            columns.ring_changed,
            columns.records,
            PSEUDO_INTERVAL,
            PSEUDO_SIGNAL_WEIGHT,
            columns.alpha,
            columns.kappa,
            columns.errors,
            columns.errors,
        )
        page.rate = columns.alpha[row]
        page.kappa = columns.kappa[row]
    page.held = True
    page.changed = False
    page.signals = 0.0
    columns.pending[row] = 0.0
    page.last_crawl = now


@compiled
def count_quiet_days(columns: Columns, day: float) -> None:
    """Have γ of all pages go by the days until `day`, in which they may not have been crawled.

    γ̂ = (n + ½)/(t + ½) is of all days watched ([K] algorithm 4 line 13): without this, a page that
    is hardly ever crawled keeps the rate that it had at its last signal.
    """
    for row in range(columns.pages.size):
        page = columns.pages[row]
        page.gamma = signal_rate(page.all_signals, max(day - page.born, 0.0))
