"""The state of a replay by crawl value: pages, what is learned of them and of hosts, in place."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.trace import Trace
from shared.policy.estimation.bursts import initial_bursts
from shared.policy.estimation.host_priors import INITIAL_CHANGE_RATE, initial_host_priors
from shared.store.history import DEPTH, SOURCES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KNOWN, PRODUCTION, SMOOTHED = 0, 1, 2
"""Learners: parameters are given; host priors, bursts and posterior mode; smoothed likelihood."""

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
        ("multiplier", np.float64),
        ("age", np.int64),
        ("last_change", np.float64),
        ("last_signal", np.float64),
        ("held", np.bool_),
        ("changed", np.bool_),
    ],
    align=True,
)
"""What a crawl value is computed from, and the state of a page.

`host` is a row in the tables of hosts; `born` the day at which the page becomes known; `held`
whether there is a copy; `rate` the unsignalled change rate α a day, times the burst multiplier
`multiplier` that bin `age` gave at the last crawl; `kappa` the evidence κ̄ of a usual signal;
`signals` those since the last crawl, each by the weight of its source (κ_k/κ̄ at the host);
`all_signals` since the beginning; `last_change` the day of the last crawl that found a change;
`last_signal` that of the last signal; `changed` whether the page changed since its last crawl,
which a policy learns by a crawl alone.
"""


class Columns(NamedTuple):
    """One row a page, unless said otherwise."""

    pages: NDArray[Any]
    """Of type `PAGE`."""
    host: Integers
    alpha: Floats
    """Unsignalled change rate α, per day."""
    kappa: Floats
    """Signal evidence κ of each source slot, (pages, SOURCES)."""
    shape: Floats
    """Posterior shape of α."""
    pending: Floats
    """Signals since the last crawl by source slot, (pages, SOURCES)."""
    totals: Floats
    """Signals since the beginning by source slot, (pages, SOURCES)."""
    intervals: Floats
    """Rings (pages, DEPTH), days times M."""
    ring_signals: Floats
    """Rings (pages, DEPTH, SOURCES)."""
    ring_changed: NDArray[np.uint8]
    """Rings (pages, DEPTH)."""
    records: Integers
    """Crawl records ever."""


class Hosts(NamedTuple):
    """One row a host."""

    prior_shape: Floats
    """A."""
    prior_rate: Floats
    """B."""
    precision: Floats
    """p by source slot, (hosts, SOURCES)."""
    signals: Floats
    """Signals since the beginning by source slot, (hosts, SOURCES)."""
    evidence: Floats
    """κ̄ of a usual signal at the last refit."""
    weights: Floats
    """Usual signals that one of each slot is worth, κ_k/κ̄, (hosts, SOURCES)."""
    expected_changes: Floats
    """Burst tables E, (hosts, 6)."""
    predicted_changes: Floats
    """Burst tables X, (hosts, 6)."""
    limit: Floats
    """Crawls a day; infinite: any."""
    tokens: Floats
    """Crawls that the host has left now."""
    filled: Floats
    """Day at which `tokens` was right."""


def new_columns(trace: Trace) -> Columns:
    """The pages at day 0: nothing is known of any."""
    count = len(trace)
    priors = initial_host_priors(1, SOURCES)
    evidence = -np.log1p(-priors.precision)
    pages = np.zeros(count, PAGE)
    pages["importance"] = trace.importance
    pages["host"] = trace.host
    pages["born"] = pages["last_crawl"] = trace.born_days
    pages["held"] = trace.held
    pages["rate"] = INITIAL_CHANGE_RATE
    pages["kappa"] = evidence[0, 0]
    pages["multiplier"] = 1.0
    pages["last_change"] = pages["last_signal"] = -np.inf
    return Columns(
        pages=pages,
        host=trace.host,
        alpha=np.full(count, INITIAL_CHANGE_RATE),
        kappa=np.repeat(evidence, count, axis=0),
        shape=np.full(count, priors.shape[0]),
        pending=np.zeros((count, SOURCES)),
        totals=np.zeros((count, SOURCES)),
        intervals=np.zeros((count, DEPTH)),
        ring_signals=np.zeros((count, DEPTH, SOURCES)),
        ring_changed=np.zeros((count, DEPTH), np.uint8),
        records=np.zeros(count, np.int64),
    )


def new_hosts(trace: Trace) -> Hosts:
    """The hosts at day 0."""
    count = len(trace.host_names)
    priors = initial_host_priors(count, SOURCES)
    expected, predicted = initial_bursts(count)
    return Hosts(
        prior_shape=priors.shape,
        prior_rate=priors.rate,
        precision=priors.precision,
        signals=np.zeros((count, SOURCES)),
        evidence=-np.log1p(-priors.precision[:, 0]),
        weights=np.ones((count, SOURCES)),
        expected_changes=expected,
        predicted_changes=predicted,
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
