"""Replays of policies that crawl by value: the loop, its learning, and its parameters."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.replay import columns as state
from services.replay.engine import Rules, crawl_slots, new_lists
from services.replay.learning import PAGES_EVERY, REFIT_DAYS, refit_priors
from services.replay.trace import Trace, trace_parameters
from shared.policy.model import PageParameters

Progress = Callable[[float], None]
"""Called with the day that a replay has reached."""

STRETCH_DAYS = 20.0
"""Progress is told so often where nothing is refitted."""

_LEARNER_NAMES = {state.KNOWN: "known", state.PRODUCTION: "production", state.SMOOTHED: "smoothed"}


@dataclass(frozen=True, slots=True)
class ValuePolicy:
    """A policy that always crawls the page of the greatest value."""

    value: int
    """Of `values`."""
    learner: int = state.SMOOTHED
    """Of `columns`; unless an oracle gives the parameters."""
    uses_signals: bool = True
    bursts: bool = False
    terms: int = 1
    signal_delay_days: float = 0.0

    def parameters(self) -> dict[str, Any]:
        """For the report."""
        chosen = asdict(self)
        chosen["learner"] = _LEARNER_NAMES[self.learner]
        if self.learner == state.PRODUCTION:
            chosen |= {"prior_refit_days": REFIT_DAYS, "pages_refit_every": PAGES_EVERY}
        return chosen


@dataclass(frozen=True, slots=True)
class ValueRun:
    """What a replay did, and what its policy believed at the end."""

    crawled: NDArray[np.int64]
    """The page of each slot, or −1."""
    columns: state.Columns
    full_scans: int
    """Slots for which the lists could not vouch."""


def run_by_value(
    trace: Trace,
    slot_days: NDArray[np.float64],
    policy: ValuePolicy,
    oracle: PageParameters | None = None,
    progress: Progress | None = None,
) -> ValueRun:
    """Replay `trace` with a crawl at each of `slot_days`.

    `oracle` gives the parameters; without it the policy learns them from what it observes.
    """
    columns = state.new_columns(trace)
    learner = policy.learner
    if oracle is not None:
        learner = state.KNOWN
        columns.alpha[:] = oracle.alpha if policy.uses_signals else oracle.change_rate
        columns.kappa[:, 0] = oracle.kappa
        columns.gamma[:] = oracle.gamma if policy.uses_signals else 0.0
    rules = Rules(
        policy.value,
        float(policy.terms),
        learner,
        policy.uses_signals,
        policy.bursts and learner != state.KNOWN,
        policy.signal_delay_days,
    )
    lists = new_lists(len(trace))
    events = trace.merged_events()
    crawled = np.full(slot_days.size, -1, np.int64)
    event, full_scans, first, refits = 0, 0, 0, 0
    step = REFIT_DAYS if learner == state.PRODUCTION else STRETCH_DAYS
    for day in np.append(np.arange(step, trace.days, step), trace.days):
        stop = int(np.searchsorted(slot_days, day, side="right"))
        event, scans = crawl_slots(
            columns, rules, lists, slot_days, first, stop, *events, event, crawled
        )
        first = stop
        full_scans += scans
        if learner == state.PRODUCTION:
            refits += 1
            refit_priors(columns, trace.site, refits % PAGES_EVERY == 0)
        if progress is not None:
            progress(float(day))
    return ValueRun(crawled, columns, full_scans)


def oracle_of(trace: Trace, use: bool) -> PageParameters | None:
    """The trace's parameters if an oracle is wanted."""
    return trace_parameters(trace) if use else None
