"""Replays of policies that crawl by value: who picks, and who learns.

`CALENDAR` is the scheduler's own code, and for the production policies; `LAB` is for any value.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.replay import columns as state
from services.replay.by_calendar import CalendarRun
from services.replay.engine import ListsRun
from services.replay.selecting import Rules
from services.replay.trace import Trace, trace_parameters
from services.replay.values import EXACT
from services.replay.virtual_estimator import (
    MATERIAL_CHANGE,
    PRIOR_REFIT_DAYS,
    VirtualEstimator,
)
from shared.contracts.objectives import DEFAULT, Told
from shared.policy.model import PageParameters
from shared.rules.host_objectives import HostObjectives

Progress = Callable[[float], None]
"""Called with the day that a replay has reached."""

STRETCH_DAYS = 20.0
"""Progress is told so often."""

LEARNING_DAYS = 1.0
"""The lab's learner counts days without signals so often, of pages that are not crawled, too."""

LAB, CALENDAR = "lab", "calendar"
"""Selections: the lab's own (`selecting`), of any value; the scheduler's, of the exact value, or of
what else its pages may be crawled for."""

_LEARNER_NAMES = {state.KNOWN: "known", state.PRODUCTION: "production", state.SMOOTHED: "smoothed"}


@dataclass(frozen=True, slots=True)
class ValuePolicy:
    """A policy that always crawls the page of the greatest value."""

    value: int
    """Of `values`."""
    learner: int = state.SMOOTHED
    """Of `columns`; unless an oracle gives the parameters."""
    uses_signals: bool = True
    terms: int = 1
    signal_delay_days: float = 0.0
    selection: str = LAB
    """Who picks: `LAB` or `CALENDAR`."""
    objective: Told = "freshness"
    """What the scheduler's calendar crawls all pages for."""

    def __post_init__(self) -> None:
        if self.selection == CALENDAR and self.value != EXACT:
            raise ValueError("the scheduler's calendar goes by the exact value alone")

    def parameters(self) -> dict[str, Any]:
        """For the report."""
        chosen = asdict(self)
        chosen["learner"] = _LEARNER_NAMES[self.learner]
        if self.learner == state.PRODUCTION:
            chosen |= {"prior_refit_days": PRIOR_REFIT_DAYS, "material_change": MATERIAL_CHANGE}
        return chosen


@dataclass(frozen=True, slots=True)
class ValueRun:
    """What a replay did, and what its policy believed at the end."""

    crawled: NDArray[np.int64]
    """The page of each slot, or −1."""
    columns: state.Columns
    estimator: VirtualEstimator | None
    """What was learned, where it is the estimator that learns."""
    work: dict[str, int]
    """What the selection had to do beyond its usual work."""


def run_by_value(
    trace: Trace,
    slot_days: NDArray[np.float64],
    policy: ValuePolicy,
    oracle: PageParameters | None = None,
    progress: Progress | None = None,
) -> ValueRun:
    """Replay `trace` with a crawl at each of `slot_days`.

    Args:
        trace: what happens.
        slot_days: rising.
        policy: what to crawl by.
        oracle: gives the parameters; without it the policy learns them from what it observes.
        progress: is told of the days done.
    """
    columns, hosts = state.new_columns(trace), state.new_hosts(trace)
    learner = policy.learner
    if oracle is not None:
        learner = state.KNOWN
        pages = columns.pages
        pages["rate"] = oracle.alpha if policy.uses_signals else oracle.change_rate
        pages["kappa"] = oracle.kappa
        pages["gamma"] = oracle.gamma if policy.uses_signals else 0.0
    rules = Rules(
        policy.value,
        float(policy.terms),
        learner,
        policy.uses_signals,
        policy.signal_delay_days,
    )
    crawled = np.full(slot_days.size, -1, np.int64)
    events = trace.merged_events(state.source_slots(trace))
    estimator = None
    if learner == state.PRODUCTION:
        estimator = VirtualEstimator(trace, policy.signal_delay_days)
    run: CalendarRun | ListsRun
    if policy.selection == CALENDAR:
        objectives = HostObjectives({DEFAULT: policy.objective})
        run = CalendarRun(
            trace, columns, hosts, rules, slot_days, events, estimator, objectives=objectives
        )
    else:
        run = ListsRun(trace, columns, hosts, rules, slot_days, events, estimator)
    first = 0
    length = LEARNING_DAYS if learner == state.SMOOTHED else STRETCH_DAYS
    for day in [*np.arange(length, trace.days, length).tolist(), trace.days]:
        stop = int(np.searchsorted(slot_days, day, "right")) if day < trace.days else slot_days.size
        run.fill(first, stop, crawled[first:stop])
        first = stop
        if progress is not None:
            progress(day)
    return ValueRun(crawled, columns, estimator, run.work)


def oracle_of(trace: Trace, use: bool) -> PageParameters | None:
    """The trace's parameters if an oracle is wanted."""
    return trace_parameters(trace) if use else None
