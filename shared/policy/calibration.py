"""Whether predictions of crawls came true, how fresh copies were, and had been by age alone.

*Chances.* Before each crawl the model gave the chance p = 1 − e^{−s} that it would find a change;
the crawl says z = 1 or 0. Whatever decided which page was crawled and when, it had not seen the
change: if the model is right, each z − p has the mean 0 given all that came before, so that
Σ(z − p) is a martingale, and Σ p(1 − p) its variance. Choosing crawls by p makes no bias.

*Freshness over time.* Crawls come when copies are likely to be stale, so the share of crawls that
found a fresh copy is not the share of time. But each moment up to a page's last crawl lies in one
interval between crawls. An unchanged one was fresh for all of its t days. A changed one was fresh
until the change, at a moment m that no crawl saw; the model's is

    m = (w − t e^{−s}) / (1 − e^{−s}),   w the expected fresh days,

the mean of the first change given that there was one. Thus Σ[(1 − z) t + z m] differs from Σ w by
Σ (z − p)(m − t): a martingale again. What needs the model is only where m lies in [0, t], and both
ends give bounds without it.

*By age alone.* Changes do not depend on crawls. So what the crawls found is a trace, on which
another schedule can be replayed: each page every τ days, at random phase. After a change at c, the
copy is stale until the next such crawl: for ∫₀ᴸ max(0, 1 − y/τ) dy days, L from c to the next
change or to the end of what is known. Both schedules begin with the copy of the first crawl known,
and an interval counts as one change, however many it had: both flatter the ages.

Errors are those of ratios over pages, which are independent: √(k/(k−1) Σ(yᵢ − R xᵢ)²) / Σxᵢ. But
of what a martingale Σd comes to, by crawls: √Σd² / Σx, d being a crawl's part of it. Where a few
pages weigh most, as importance has it, there are too few pages to tell it by.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]

TENTHS: Final = 10

SMALL: Final = 1e-4
"""Staleness below which a change is taken to lie in the middle of its interval: the formula's
differences would be those of rounding."""

TOUCHING_SECONDS: Final = 1.0
"""An interval that begins so near the end of the page's last one follows it."""


class Crawls(NamedTuple):
    """Crawls that were predicted, sorted by page and time; an element a crawl."""

    pages: NDArray[np.int64]
    crawled_at: Floats
    """Unix seconds."""
    interval_days: Floats
    """t, since the page's crawl before."""
    changed: NDArray[np.bool_]
    """z."""
    staleness: Floats
    """s, just before the crawl, by what was known before it."""
    fresh_days: Floats
    """w: for so much of the interval the copy was expected to be fresh."""
    importance: Floats


class Comparison(NamedTuple):
    """What was predicted of some crawls, and what they found."""

    crawls: int
    predicted: float
    """Mean chance of a change."""
    found: float
    """Share of crawls that found one."""
    error: float
    """Standard error of `found` if the predictions are right."""


class Estimate(NamedTuple):
    """A figure and its standard error; NaN where that is one over pages, and there is one page."""

    value: float
    error: float


class Freshness(NamedTuple):
    """Freshness over the time between crawls, weighted by importance."""

    expected: float
    """By the model, before each crawl."""
    found: Estimate
    """From what the crawls found."""
    least: float
    """Every change right after the crawl before: no model can say less. At most it is 1."""
    difference: Estimate
    """`found` less `expected`; with its standard error if the model is right."""


class ByAge(NamedTuple):
    """The same time and changes under a schedule that goes by age alone."""

    revisit_days: float
    """τ."""
    found: Estimate
    gain: Estimate
    """Freshness found less that by age."""
    least_gain: float
    most_gain: float
    """Wherever in their intervals changes were, all at their beginnings or all at their ends."""


def chance_of(staleness: NDArray[Any]) -> Floats:
    """p = 1 − e^{−s}: the chance that a crawl finds a change."""
    return -np.expm1(-np.asarray(staleness, np.float64))


def tenth_of(chances: Floats) -> NDArray[np.int64]:
    """In which tenth of [0, 1] chances lie: 0 to 9."""
    return np.minimum(chances * TENTHS, TENTHS - 1).astype(np.int64)


def compare(chances: Floats, changed: NDArray[np.bool_]) -> Comparison:
    """Compare the chances of at least one crawl with what was found."""
    count = chances.size
    spread = math.sqrt(float((chances * (1.0 - chances)).sum()))
    return Comparison(count, float(chances.mean()), float(changed.mean()), spread / count)


def moments_of_change(crawls: Crawls) -> Floats:
    """m: days from an interval's beginning to its first change, if it has one, by the model."""
    days, s = crawls.interval_days, crawls.staleness
    is_large = s > SMALL
    chance = np.where(is_large, chance_of(s), 1.0)
    moments = np.where(is_large, (crawls.fresh_days - days * np.exp(-s)) / chance, 0.5 * days)
    return np.clip(moments, 0.0, days)


def freshness(crawls: Crawls) -> Freshness:
    """How fresh copies were expected to be, and were, over the intervals of at least one crawl."""
    days, weights = crawls.interval_days, crawls.importance
    fresh = np.where(crawls.changed, moments_of_change(crawls), days)
    whole = weights * days
    return Freshness(
        expected=_ratio(crawls.pages, weights * crawls.fresh_days, whole).value,
        found=_ratio(crawls.pages, weights * fresh, whole),
        least=_ratio(crawls.pages, whole * ~crawls.changed, whole).value,
        difference=_martingale(weights * (fresh - crawls.fresh_days), whole),
    )


def by_age(crawls: Crawls, revisit_days: float) -> ByAge:
    """What crawling each page every so many days had given, at least one crawl being known.

    Args:
        crawls: what is known of changes.
        revisit_days: τ, above 0: pages to be kept fresh, over crawls a day.
    """
    days, nothing = crawls.interval_days, np.zeros(crawls.pages.size)
    found, gain = _against_ages(crawls, moments_of_change(crawls), revisit_days)
    extremes = [_against_ages(crawls, ends, revisit_days)[1].value for ends in (nothing, days)]
    return ByAge(revisit_days, found, gain, min(extremes), max(extremes))


def _against_ages(
    crawls: Crawls, moments: Floats, revisit_days: float
) -> tuple[Estimate, Estimate]:
    """Freshness by age alone, and what the crawls gained over it, if changes were at `moments`."""
    days, weights = crawls.interval_days, crawls.importance
    stale = np.where(crawls.changed, days - moments, 0.0)
    stale_by_age = _stale_by_age(crawls, moments, revisit_days)
    whole = weights * days
    return (
        _ratio(crawls.pages, weights * (days - stale_by_age), whole),
        _ratio(crawls.pages, weights * (stale_by_age - stale), whole),
    )


def _stale_by_age(crawls: Crawls, moments: Floats, revisit_days: float) -> Floats:
    """Stale days that follow the change of each interval; 0 where it has none."""
    ends = crawls.crawled_at / SECONDS_PER_DAY
    begins = ends - crawls.interval_days
    follows = (crawls.pages[1:] == crawls.pages[:-1]) & (
        np.abs(begins[1:] - ends[:-1]) * SECONDS_PER_DAY <= TOUCHING_SECONDS
    )
    run = np.concatenate([[0], np.cumsum(~follows)])
    last = np.concatenate([np.flatnonzero(~follows), [run.size - 1]])
    changes = np.flatnonzero(crawls.changed)
    times = (begins + moments)[changes]
    until = ends[last][run[changes]]
    is_followed = run[changes][1:] == run[changes][:-1]
    until[:-1][is_followed] = times[1:][is_followed]
    length = np.clip(until - times, 0.0, revisit_days)
    stale = np.zeros(run.size)
    stale[changes] = length - length**2 / (2.0 * revisit_days)
    return stale


def _martingale(parts: Floats, whole: Floats) -> Estimate:
    """Σ parts / Σ whole of parts that have the mean 0 given all before, and its standard error."""
    total = float(whole.sum())
    if not total > 0.0:
        return Estimate(math.nan, math.nan)
    return Estimate(float(parts.sum()) / total, math.sqrt(float((parts**2).sum())) / total)


def _ratio(pages: NDArray[np.int64], parts: Floats, whole: Floats) -> Estimate:
    """Σ parts / Σ whole, and its standard error over pages."""
    _, page = np.unique(pages, return_inverse=True)
    of_page, all_of_page = np.bincount(page, parts), np.bincount(page, whole)
    total, count = float(whole.sum()), of_page.size
    if not total > 0.0:
        return Estimate(math.nan, math.nan)
    value = float(parts.sum()) / total
    if count < 2:
        return Estimate(value, math.nan)
    squares = float(((of_page - value * all_of_page) ** 2).sum())
    return Estimate(value, math.sqrt(squares * count / (count - 1)) / total)
