"""Ways to bend a trace, to see what a policy makes of it: each a pure function of a seed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from services.replay.slots import Budget
from services.replay.trace import Trace

Bent = tuple[Trace, Budget]

SPAM_FACTOR = 10
SPAM_SHARE = 0.05
LOST_SHARE = 0.3
FALSE_SHARE = 0.5
MEAN_DELAY_DAYS = 1.0
BURST_LENGTH = 4
BURST_DAYS = 2.0
BURST_SHARE = 0.3
LIMITED_SHARE = 0.5
"""Host limits: half of the demand of each of the busiest hosts is what it allows."""
NEW_SHARE = 0.2
HOUR_DAYS = 1.0 / 24
OLD_SHARE = 0.25
"""Old copies were made at any time in this first share of the trace."""


def noise(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Recall and precision corrupted: 30 % of signals lost, half as many false ones added."""
    rng = _rng(seed, 1)
    kept = rng.random(trace.signal_days.size) >= LOST_SHARE
    count = int(FALSE_SHARE * trace.signal_days.size)
    days = np.concatenate([trace.signal_days[kept], rng.random(count) * trace.days])
    strangers = rng.integers(0, len(trace), count)
    pages = np.concatenate([trace.signal_pages[kept], strangers])
    sources = np.concatenate([trace.signal_sources[kept], _sources_at(trace, strangers)])
    return _with_signals(trace, days, pages, sources), budget


def delay(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Every signal comes later, by an exponential time of a day on average."""
    late = trace.signal_days + _rng(seed, 2).exponential(MEAN_DELAY_DAYS, trace.signal_days.size)
    return _with_signals(trace, late, trace.signal_pages, trace.signal_sources), budget


def spam(trace: Trace, budget: Budget, seed: int) -> Bent:
    """On 5 % of pages come ten times as many signals (at least as many as on a usual page).

    The added ones are false, and spread over the whole time.
    """
    rng = _rng(seed, 3)
    chosen = rng.random(len(trace)) < SPAM_SHARE
    own = np.bincount(trace.signal_pages, minlength=len(trace))
    usual = max(trace.signal_pages.size / len(trace), 1.0)
    extra = np.where(chosen, (SPAM_FACTOR - 1) * np.maximum(own, usual), 0.0).astype(np.int64)
    pages = np.repeat(np.arange(len(trace)), extra)
    days = rng.random(pages.size) * trace.days
    return _with_signals(
        trace,
        np.concatenate([trace.signal_days, days]),
        np.concatenate([trace.signal_pages, pages]),
        np.concatenate([trace.signal_sources, _sources_at(trace, pages)]),
    ), budget


def shuffled(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Each page receives the signals of another: they say nothing."""
    other = _rng(seed, 4).permutation(len(trace))
    pages = other[trace.signal_pages]
    return _with_signals(trace, trace.signal_days, pages, _sources_at(trace, pages)), budget


def drift(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Halfway, every page takes over the events of another: what was learned is outdated."""
    other = _rng(seed, 5).permutation(len(trace))

    def moved(days: NDArray[np.float64], pages: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(days > trace.days / 2, other[pages], pages)

    return replace(
        trace,
        change_pages=moved(trace.change_days, trace.change_pages),
        signal_pages=moved(trace.signal_days, trace.signal_pages),
        known=None,
    ), budget


def bursts(trace: Trace, budget: Budget, seed: int) -> Bent:
    """After 30 % of changes a page changes four times more within two days, without a signal."""
    rng = _rng(seed, 6)
    begun = np.flatnonzero(rng.random(trace.change_days.size) < BURST_SHARE)
    again = np.repeat(begun, BURST_LENGTH)
    days = trace.change_days[again] + rng.random(again.size) * BURST_DAYS
    inside = days < trace.days
    days = np.concatenate([trace.change_days, days[inside]])
    pages = np.concatenate([trace.change_pages, trace.change_pages[again[inside]]])
    order = np.argsort(days, kind="stable")
    return replace(trace, change_days=days[order], change_pages=pages[order], known=None), budget


def bandwidth_steps(trace: Trace, budget: Budget, seed: int) -> Bent:
    """The budget is halved for the middle third and half as much again for the last."""
    del seed
    rate = budget.mean_rate(trace.days)
    third = trace.days / 3
    steps = ((0.0, rate), (third, 0.5 * rate), (2 * third, 1.5 * rate))
    return trace, Budget(steps)


def host_limits(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Each of the hosts that have more than a twentieth of pages allows half its fair share."""
    del seed
    pages = np.bincount(trace.host, minlength=len(trace.host_names))
    share = pages / len(trace)
    fair = share * budget.mean_rate(trace.days)
    limit = np.where(share > 0.05, LIMITED_SHARE * fair, np.inf)
    return replace(trace, host_limit=limit), budget


def new_pages(trace: Trace, budget: Budget, seed: int) -> Bent:
    """A fifth of pages become known in the course of time, and no copy of them is held."""
    rng = _rng(seed, 7)
    new = rng.random(len(trace)) < NEW_SHARE
    born = np.where(new, rng.random(len(trace)) * trace.days, trace.born_days)
    return replace(trace, born_days=born, held=trace.held & ~new), budget


def cold_start(trace: Trace, budget: Budget, seed: int) -> Bent:
    """No copy of any page is held at the beginning."""
    del seed
    return replace(trace, held=np.zeros(len(trace), np.bool_)), budget


def hour_late(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Every signal comes an hour later."""
    del seed
    return _later(trace, HOUR_DAYS), budget


def six_hours_late(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Every signal comes six hours later."""
    del seed
    return _later(trace, 6 * HOUR_DAYS), budget


def day_late(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Every signal comes a day later."""
    del seed
    return _later(trace, 1.0), budget


def half_the_hosts(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Half of the hosts that send signals send none."""
    sending = np.unique(trace.host[trace.signal_pages])
    dumb = _rng(seed, 8).permutation(sending)[: (sending.size + 1) // 2]
    kept = ~np.isin(trace.host[trace.signal_pages], dumb)
    return _with_signals(
        trace, trace.signal_days[kept], trace.signal_pages[kept], trace.signal_sources[kept]
    ), budget


def no_signals(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Nobody sends any signal."""
    del seed
    return without_signals(trace), budget


def old_copies(trace: Trace, budget: Budget, seed: int) -> Bent:
    """Copies were made at any time in the first quarter of the trace, and nobody crawled since.

    Signals of that time are lost, crawls and accounts begin after it: so at first copies are as
    old as a quarter of the trace, and stale where the page has changed since.
    """
    start = OLD_SHARE * trace.days
    born = np.where(trace.held, _rng(seed, 9).random(len(trace)) * start, trace.born_days)
    heard = trace.signal_days > start
    bent = _with_signals(
        trace, trace.signal_days[heard], trace.signal_pages[heard], trace.signal_sources[heard]
    )
    begun = [rate for day, rate in budget.steps if day <= start][-1]
    later = [(day, rate) for day, rate in budget.steps if day > start]
    steps = ((0.0, 0.0), (start, begun), *later)
    return replace(bent, born_days=born, judged_from=start), Budget(steps)


def importance_one(trace: Trace, budget: Budget, seed: int) -> Bent:
    """All pages are equally important."""
    del seed
    return replace(trace, importance=np.ones(len(trace)), known=None), budget


SCENARIOS: dict[str, Callable[[Trace, Budget, int], Bent]] = {
    "noise": noise,
    "delay": delay,
    "spam": spam,
    "shuffled": shuffled,
    "drift": drift,
    "bursts": bursts,
    "bandwidth-steps": bandwidth_steps,
    "host-limits": host_limits,
    "new-pages": new_pages,
    "cold-start": cold_start,
    "hour-late": hour_late,
    "six-hours-late": six_hours_late,
    "day-late": day_late,
    "half-the-hosts": half_the_hosts,
    "no-signals": no_signals,
    "old-copies": old_copies,
    "importance-one": importance_one,
}
"""Name → (trace, budget, seed) → what it becomes."""


def without_signals(trace: Trace) -> Trace:
    """The trace as those know it who listen to nobody."""
    nothing = np.empty(0, np.int64)
    return _with_signals(trace, np.empty(0), nothing, nothing)


def _later(trace: Trace, days: float) -> Trace:
    return _with_signals(trace, trace.signal_days + days, trace.signal_pages, trace.signal_sources)


def _rng(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([seed, 100 + stream])


def _sources_at(trace: Trace, pages: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sources that false signals of these pages seem to come from: the usual one of each
    page's host, of a host without signals the usual one of all."""
    hosts, sources = len(trace.host_names), int(trace.signal_sources.max(initial=0)) + 1
    pairs = trace.host[trace.signal_pages] * sources + trace.signal_sources
    counts = np.bincount(pairs, minlength=hosts * sources).reshape(hosts, sources)
    usual = np.where(counts.sum(axis=1) > 0, counts.argmax(axis=1), counts.sum(axis=0).argmax())
    return np.asarray(usual[trace.host[pages]], dtype=np.int64)


def _with_signals(
    trace: Trace,
    days: NDArray[np.float64],
    pages: NDArray[np.int64],
    sources: NDArray[np.int64],
) -> Trace:
    """The trace with these signals, in order; what was known of the old ones no longer holds."""
    order = np.argsort(days, kind="stable")
    order = order[days[order] <= trace.days]
    return replace(
        trace,
        signal_days=days[order],
        signal_pages=pages[order],
        signal_sources=sources[order],
        known=None,
    )
