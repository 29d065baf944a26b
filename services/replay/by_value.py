"""Replays of policies that crawl by value: who picks, who learns, and when priors are refitted.

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
from services.replay.learning import FIRST_RECORDS, REFIT_DAYS, refit_priors
from services.replay.selecting import Rules
from services.replay.trace import Trace, trace_parameters
from services.replay.values import EXACT
from shared.policy.model import PageParameters

Progress = Callable[[float], None]
"""Called with the day that a replay has reached."""

STRETCH_DAYS = 20.0
"""Progress is told so often where nothing is refitted."""

LAB, CALENDAR = "lab", "calendar"
"""Selections: the lab's own (`selecting`), of any value; the scheduler's, of the exact value."""

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
    selection: str = LAB
    """Who picks: `LAB` or `CALENDAR`."""

    def __post_init__(self) -> None:
        if self.selection == CALENDAR and self.value != EXACT:
            raise ValueError("the scheduler's calendar goes by the exact value alone")

    def parameters(self) -> dict[str, Any]:
        """For the report."""
        chosen = asdict(self)
        chosen["learner"] = _LEARNER_NAMES[self.learner]
        if self.learner == state.PRODUCTION:
            chosen |= {
                "first_prior_refit_crawls": FIRST_RECORDS,
                "prior_refit_days": REFIT_DAYS,
            }
        return chosen


@dataclass(frozen=True, slots=True)
class ValueRun:
    """What a replay did, and what its policy believed at the end."""

    crawled: NDArray[np.int64]
    """The page of each slot, or −1."""
    columns: state.Columns
    hosts: state.Hosts
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
        policy.bursts and learner != state.KNOWN,
        policy.signal_delay_days,
    )
    crawled = np.full(slot_days.size, -1, np.int64)
    events = trace.merged_events(state.source_slots(trace))
    run: CalendarRun | ListsRun
    if policy.selection == CALENDAR:
        run = CalendarRun(trace, columns, hosts, rules, slot_days, events)
    else:
        run = ListsRun(columns, hosts, rules, slot_days, events)
    first = 0
    for stop, day in _stretches(slot_days, trace.days, learner):
        run.fill(first, stop, crawled[first:stop])
        first = stop
        if learner == state.PRODUCTION:
            refit_priors(columns, hosts, trace.site)
            if isinstance(run, CalendarRun):
                run.refitted(day)
        if progress is not None:
            progress(day)
    return ValueRun(crawled, columns, hosts, run.work)


def _stretches(
    slot_days: NDArray[np.float64], days: float, learner: int
) -> list[tuple[int, float]]:
    """(slots done, day) at which the loop stops: to refit where something is learned.

    As the estimator worker does, early refits follow the number of crawls.
    """
    every = REFIT_DAYS if learner == state.PRODUCTION else STRETCH_DAYS
    ends = {int(np.searchsorted(slot_days, day, "right")) for day in np.arange(every, days, every)}
    count = FIRST_RECORDS
    while learner == state.PRODUCTION and count < min(slot_days.size, 2 * min(ends, default=0)):
        ends.add(count)
        count *= 2
    ends.add(slot_days.size)
    return [(stop, float(slot_days[stop - 1]) if stop else 0.0) for stop in sorted(ends)]


def oracle_of(trace: Trace, use: bool) -> PageParameters | None:
    """The trace's parameters if an oracle is wanted."""
    return trace_parameters(trace) if use else None
