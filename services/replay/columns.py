"""The state of a replay by crawl value: pages, what is learned of them and of hosts, in place."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.trace import Trace
from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE, INITIAL_PRECISION
from shared.store.history import DEPTH, SOURCES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KNOWN, PRODUCTION, SMOOTHED = 0, 1, 2
"""Learners: parameters are given; the estimator's own code; the lab's smoothed likelihood."""

TOKENS_DEPTH = 2.0
"""Crawls that a limited host may have saved up."""

PAGE = np.dtype(
    [
        ("importance", np.float64),
        ("host", np.int64),
        ("born", np.float64),
        ("rate", np.float64),
        ("kappa", np.float64),
        ("gamma", np.float64),
        ("last_crawl", np.float64),
        ("signals", np.float64),
        ("all_signals", np.float64),
        ("held", np.bool_),
        ("changed", np.bool_),
    ],
    align=True,
)
"""What a crawl value is computed from, and the state of a page.

`host` is a row in the tables of hosts; `born` the day at which the page becomes known; `held`
whether there is a copy; `rate` the unsignalled change rate α a day, burst multiplier included;
`kappa` the evidence κ̄ of a usual signal; `signals` those since the last crawl, each by the weight
of its source (κ_k/κ̄ at the host); `all_signals` since the beginning; `changed` whether the page
changed since its last crawl, which a policy learns by a crawl alone.
"""


class Columns(NamedTuple):
    """One row a page, unless said otherwise."""

    pages: NDArray[Any]
    """Of type `PAGE`."""
    last_signals: Floats
    """Days of the last signals from the sources in each slot, (pages, SOURCES)."""
    alpha: Floats
    """Of `SMOOTHED`, as are the columns below: unsignalled change rate α, per day."""
    kappa: Floats
    """Signal evidence κ."""
    errors: Floats
    """Standard errors, which nobody reads."""
    pending: Floats
    """Signals since the last crawl, of whatever source."""
    intervals: Floats
    """Rings (pages, DEPTH), days."""
    ring_signals: Floats
    """Rings (pages, DEPTH, 1)."""
    ring_changed: NDArray[np.uint8]
    """Rings (pages, DEPTH)."""
    records: Integers
    """Crawl records ever."""


class Hosts(NamedTuple):
    """One row a host."""

    weights: Floats
    """Usual signals that one of each slot is worth, κ_k/κ̄, (hosts, SOURCES)."""
    limit: Floats
    """Crawls a day; infinite: any."""
    tokens: Floats
    """Crawls that the host has left now."""
    filled: Floats
    """Day at which `tokens` was right."""


def new_columns(trace: Trace) -> Columns:
    """The pages at day 0: nothing is known of any."""
    count = len(trace)
    evidence = -math.log1p(-INITIAL_PRECISION)
    pages = np.zeros(count, PAGE)
    pages["importance"] = trace.importance
    pages["host"] = trace.host
    pages["born"] = pages["last_crawl"] = trace.born_days
    pages["held"] = trace.held
    pages["rate"] = INITIAL_CHANGE_RATE
    pages["kappa"] = evidence
    return Columns(
        pages=pages,
        last_signals=np.full((count, SOURCES), -np.inf),
        alpha=np.full(count, INITIAL_CHANGE_RATE),
        kappa=np.full(count, evidence),
        errors=np.zeros(count),
        pending=np.zeros(count),
        intervals=np.zeros((count, DEPTH)),
        ring_signals=np.zeros((count, DEPTH, 1)),
        ring_changed=np.zeros((count, DEPTH), np.uint8),
        records=np.zeros(count, np.int64),
    )


def new_hosts(trace: Trace) -> Hosts:
    """The hosts at day 0."""
    count = len(trace.host_names)
    return Hosts(
        weights=np.ones((count, SOURCES)),
        limit=trace.host_limit,
        tokens=np.full(count, TOKENS_DEPTH),
        filled=np.zeros(count),
    )


def source_slots(trace: Trace) -> Integers:
    """The slot of each signal's source at its host, as production gives them out.

    The first sources that a host hears of have slots of their own; the others share the last.
    """
    hosts = trace.host[trace.signal_pages]
    pairs = hosts * (int(trace.signal_sources.max(initial=0)) + 1) + trace.signal_sources
    names, first, which = np.unique(pairs, return_index=True, return_inverse=True)
    slots = np.empty(names.size, np.int64)
    taken: dict[int, int] = {}
    for pair in np.argsort(first, kind="stable").tolist():
        host = int(hosts[first[pair]])
        slots[pair] = min(taken.get(host, 0), SOURCES - 1)
        taken[host] = taken.get(host, 0) + 1
    return slots[which]
