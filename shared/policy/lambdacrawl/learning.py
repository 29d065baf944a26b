"""The learning versions LLC, LLCA and BLLCε ([K] algorithm 4 and supplement 9.3).

Each works in epochs (of a day): re-estimate the change rates from what was observed so far, or
from a suffix of it, then solve for the rates of the next epoch as if they were true. The functions
here are that step: histories in, crawl rates out, nothing kept. A page with no record yet has the
estimate of the pseudo-records alone, ln 2/0.5 a day without complete signals, 1 a day with.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.estimation.change_rates import (
    change_rates_from_complete_signals,
    change_rates_from_crawls,
)
from shared.policy.lambdacrawl.binary import FLOOR_SHARE, binary_lambda_crawl_with_floor
from shared.policy.lambdacrawl.harmonic import (
    CrawlRates,
    lambda_crawl,
    lambda_crawl_approximate,
)
from shared.policy.lambdacrawl.inputs import Floats


class ObservedHistory(NamedTuple):
    """What an epoch knows: crawls of all pages (ragged) and signals of those that send them all."""

    intervals: NDArray[Any]
    """Days between crawls, (records,)."""
    changed: NDArray[Any]
    """1 where the crawl found a change, (records,)."""
    offsets: NDArray[Any]
    """Page i owns records offsets[i]:offsets[i + 1], (pages + 1,)."""
    signalled_changes: NDArray[Any]
    """Change signals received, (pages,); read for pages with complete signals alone."""
    days: NDArray[Any]
    """Days over which signals were counted, (pages,) or one number."""


def learned_change_rates(history: ObservedHistory, complete: Any) -> Floats:
    """Δ̂ (pages,), per day: smoothed equation 11 where `complete`, equation 10 elsewhere.

    Raises ValueError on malformed histories.
    """
    from_crawls = change_rates_from_crawls(history.intervals, history.changed, history.offsets)
    from_signals = change_rates_from_complete_signals(history.signalled_changes, history.days)
    return np.asarray(np.where(np.asarray(complete, dtype=bool), from_signals, from_crawls))


def lambda_learn_and_crawl(
    importance: Any, complete: Any, history: ObservedHistory, bandwidth: float
) -> CrawlRates:
    """LLC: `lambda_crawl` at the learned change rates ([K] algorithm 4).

    Raises ValueError on malformed columns, histories or bandwidth.
    """
    return lambda_crawl(importance, learned_change_rates(history, complete), complete, bandwidth)


def lambda_learn_and_crawl_approximate(
    importance: Any, complete: Any, history: ObservedHistory, bandwidth: float
) -> CrawlRates:
    """LLCA: `lambda_crawl_approximate` at the learned change rates.

    Raises ValueError on malformed columns, histories or bandwidth.
    """
    rates = learned_change_rates(history, complete)
    return lambda_crawl_approximate(importance, rates, complete, bandwidth)


def binary_learn_and_crawl(
    importance: Any,
    history: ObservedHistory,
    bandwidth: float,
    floor_share: float = FLOOR_SHARE,
) -> CrawlRates:
    """BLLCε: `binary_lambda_crawl_with_floor` at rates learned from crawls alone.

    Like BLC it makes no use of signals. Raises ValueError on malformed input.
    """
    rates = change_rates_from_crawls(history.intervals, history.changed, history.offsets)
    return binary_lambda_crawl_with_floor(importance, rates, bandwidth, floor_share)
