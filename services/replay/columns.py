"""The state of a replay by crawl value: columns of pages and tables of hosts, changed in place."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.trace import Trace
from shared.policy.estimation.bursts import initial_bursts
from shared.policy.estimation.host_priors import INITIAL_CHANGE_RATE, initial_host_priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DEPTH = 32
"""Crawl records kept of each page, as production keeps."""

KNOWN, PRODUCTION, SMOOTHED = 0, 1, 2
"""Learners: parameters are given; host priors, bursts and posterior mode; smoothed likelihood."""

TOKENS_DEPTH = 2.0
"""Crawls that a limited host may have saved up."""


class Columns(NamedTuple):
    """One row a page, unless said otherwise."""

    importance: Floats
    host: Integers
    """Row in the tables of hosts."""
    born: Floats
    """Day at which the page becomes known."""
    held: NDArray[np.bool_]
    """Whether there is a copy; a page without one is crawled before all others."""
    alpha: Floats
    """Unsignalled change rate α, per day."""
    kappa: Floats
    """Signal evidence κ, (pages, 1): the estimators take a column a source."""
    gamma: Floats
    """Signal rate γ, per day."""
    shape: Floats
    """Posterior shape of α."""
    multiplier: Floats
    """Burst multiplier M since the last crawl."""
    age: Integers
    """Burst bin that M came from."""
    last_crawl: Floats
    last_change: Floats
    """Day of the last crawl that found a change; −infinity: none."""
    signals: Floats
    """Since the last crawl."""
    all_signals: Floats
    """Since the beginning."""
    changed: NDArray[np.bool_]
    """Whether the page changed since its last crawl; a policy learns it by a crawl alone."""
    intervals: Floats
    """Rings (pages, DEPTH), days times M."""
    ring_signals: Floats
    """Rings (pages, DEPTH, 1)."""
    ring_changed: NDArray[np.uint8]
    """Rings (pages, DEPTH)."""
    records: Integers
    """Crawl records ever."""
    prior_shape: Floats
    """Of each host: A."""
    prior_rate: Floats
    """Of each host: B."""
    prior_precision: Floats
    """Of each host: p, (hosts, 1)."""
    expected_changes: Floats
    """Burst tables E, (hosts, 6)."""
    predicted_changes: Floats
    """Burst tables X, (hosts, 6)."""
    trusts_bursts: NDArray[np.bool_]
    """Of each host: whether its signals are true often enough for bursts to help."""
    limit: Floats
    """Of each host: crawls a day; infinite: any."""
    tokens: Floats
    """Of each host: crawls it has left now."""
    filled: Floats
    """Of each host: day at which `tokens` was right."""


def new_columns(trace: Trace) -> Columns:
    """The state at day 0: nothing is known of any page."""
    pages, hosts = len(trace), len(trace.host_names)
    priors = initial_host_priors(hosts, 1)
    return Columns(
        importance=trace.importance,
        host=trace.host,
        born=trace.born_days,
        held=trace.held.copy(),
        alpha=np.full(pages, INITIAL_CHANGE_RATE),
        kappa=np.tile(-np.log1p(-priors.precision[:1]), (pages, 1)),
        gamma=np.zeros(pages),
        shape=np.full(pages, priors.shape[0]),
        multiplier=np.ones(pages),
        age=np.zeros(pages, np.int64),
        last_crawl=trace.born_days.copy(),
        last_change=np.full(pages, -np.inf),
        signals=np.zeros(pages),
        all_signals=np.zeros(pages),
        changed=np.zeros(pages, np.bool_),
        intervals=np.zeros((pages, DEPTH)),
        ring_signals=np.zeros((pages, DEPTH, 1)),
        ring_changed=np.zeros((pages, DEPTH), np.uint8),
        records=np.zeros(pages, np.int64),
        prior_shape=priors.shape,
        prior_rate=priors.rate,
        prior_precision=priors.precision,
        expected_changes=initial_bursts(hosts)[0],
        predicted_changes=initial_bursts(hosts)[1],
        trusts_bursts=np.zeros(hosts, np.bool_),
        limit=trace.host_limit,
        tokens=np.full(hosts, TOKENS_DEPTH),
        filled=np.zeros(hosts),
    )
