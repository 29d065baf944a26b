"""What a sequence of crawls came to: freshness, costs and ages, from the changes that happened.

Every policy is judged here, by its crawls alone. Between two events a page has n unseen changes;
it is stale while n > 0, and the harmonic penalty is H(n) = 1 + 1/2 + … + 1/n [K].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.replay.trace import Trace
from shared.policy.compiled import compiled
from shared.rules.sites import site_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SERIES_BINS = 120
"""Points of the freshness over time."""

NEVER_HELD_PENALTY = 1.0
"""H of a page of which there is no copy yet: as if one change had been missed."""

IDLE = -1
"""Page of a slot that nothing was crawled in."""


@dataclass(frozen=True, slots=True)
class Books:
    """The accounts of one replay; columns have one row a page."""

    trace: Trace
    stale_days: Floats
    penalty_days: Floats
    """∫ H(n) dt."""
    age_days: Floats
    """∫ a dt, a being for how long a copy has been stale: days², 0 while it is fresh."""
    crawls: Integers
    unchanged: Integers
    """Crawls that found no change."""
    oldest_days: Floats
    """The greatest age that the page's copy ever reached."""
    series_days: Floats
    series_freshness: Floats
    """Importance-weighted, averaged over the bin that ends at `series_days`."""
    requests: Integers
    """Of the trace's requests, those for each page that was known by then."""
    fresh_requests: Integers
    """Those of them that found a fresh copy."""

    @property
    def known_days(self) -> Floats:
        """How long each page was known, while the policy is judged."""
        begin = np.maximum(self.trace.born_days, self.trace.judged_from)
        return np.maximum(self.trace.days - begin, 0.0)

    @property
    def judged_days(self) -> float:
        """How long the policy is judged."""
        return self.trace.days - self.trace.judged_from

    @property
    def staleness(self) -> float:
        """Importance-weighted, time-averaged share of stale copies."""
        weight = self.trace.importance
        return float((weight * self.stale_days).sum() / (weight * self.known_days).sum())

    @property
    def fresh_request_share(self) -> float | None:
        """Share of requests that found a fresh copy; None: the trace has none."""
        asked = int(self.requests.sum())
        return float(self.fresh_requests.sum() / asked) if asked else None

    @property
    def mean_age_days(self) -> float:
        """Importance-weighted, time-averaged age of what is stale, days; what is fresh has none."""
        weight = self.trace.importance
        return float((weight * self.age_days).sum() / (weight * self.known_days).sum())

    @property
    def harmonic_cost(self) -> float:
        """[K]'s J_h measured: mean over pages and time of importance times H(n)."""
        total = (self.trace.importance * self.penalty_days).sum()
        return float(total / (self.judged_days * len(self.trace)))

    @property
    def binary_cost(self) -> float:
        """[K]'s J_b measured: mean over pages and time of importance times staleness."""
        total = (self.trace.importance * self.stale_days).sum()
        return float(total / (self.judged_days * len(self.trace)))

    def report(self, crawls_by_site: bool = True) -> dict[str, Any]:
        """The accounts for JSON."""
        crawls = int(self.crawls.sum())
        alive = self.known_days > 0
        found: dict[str, Any] = {
            "staleness": self.staleness,
            "freshness": 1.0 - self.staleness,
            "mean_age_days": self.mean_age_days,
            "harmonic_cost": self.harmonic_cost,
            "binary_cost": self.binary_cost,
            "crawls": crawls,
            "unchanged_share": float(self.unchanged.sum() / crawls) if crawls else 0.0,
            "worst_age_days": float(self.oldest_days[alive].max(initial=0.0)),
            "pages_never_crawled": int((self.crawls[alive] == 0).sum()),
            "requests": int(self.requests.sum()),
            "fresh_request_share": self.fresh_request_share,
            "freshness_over_time": {
                "days": self.series_days.tolist(),
                "freshness": self.series_freshness.tolist(),
            },
        }
        if crawls_by_site:
            found["crawls_by_site"] = self.crawls_by_site()
        return found

    def crawls_by_site(self) -> dict[str, int]:
        """Crawls of the pages of each site, the most crawled first."""
        trace = self.trace
        totals = np.bincount(trace.site[trace.host], self.crawls, int(trace.site.max()) + 1)
        names = {int(s): site_of(n) for s, n in zip(trace.site, trace.host_names, strict=True)}
        order = np.argsort(-totals, kind="stable")
        return {names[int(site)]: int(totals[site]) for site in order}


def settle(trace: Trace, slot_days: Floats, crawled: Integers) -> Books:
    """The accounts of the crawls `crawled` (a page, or `IDLE`) at `slot_days`, rising."""
    count = len(trace)
    stale, penalty, age = np.zeros(count), np.zeros(count), np.zeros(count)
    crawls, unchanged = np.zeros(count, np.int64), np.zeros(count, np.int64)
    oldest = np.zeros(count)
    bins = np.zeros(SERIES_BINS)
    known = np.zeros(SERIES_BINS)
    _settle(
        trace.importance,
        trace.born_days,
        trace.held,
        trace.change_days,
        trace.change_pages,
        slot_days,
        crawled,
        trace.judged_from,
        trace.days,
        stale,
        penalty,
        age,
        crawls,
        unchanged,
        oldest,
        bins,
        known,
    )
    series = 1.0 - np.divide(bins, known, out=np.zeros(SERIES_BINS), where=known > 0)
    ends = trace.days * (np.arange(SERIES_BINS) + 1) / SERIES_BINS
    asked, fresh = np.zeros(count, np.int64), np.zeros(count, np.int64)
    _answer(
        trace.born_days,
        trace.judged_from,
        trace.held,
        trace.change_days,
        trace.change_pages,
        slot_days,
        crawled,
        trace.request_days,
        trace.request_pages,
        asked,
        fresh,
    )
    judged = ends > trace.judged_from
    ends, series = ends[judged], series[judged]
    return Books(trace, stale, penalty, age, crawls, unchanged, oldest, ends, series, asked, fresh)


@compiled
def _answer(
    born: Floats,
    start: float,
    held: NDArray[np.bool_],
    change_days: Floats,
    change_pages: Integers,
    slot_days: Floats,
    crawled: Integers,
    request_days: Floats,
    request_pages: Integers,
    asked: Integers,
    fresh: Integers,
) -> None:
    """Count requests; of what happens at one time a change comes first, then a crawl."""
    stale = ~held
    change = slot = 0
    for request in range(request_days.size):
        now, page = request_days[request], request_pages[request]
        while True:
            next_change = change_days[change] if change < change_days.size else np.inf
            next_slot = slot_days[slot] if slot < slot_days.size else np.inf
            if min(next_change, next_slot) > now:
                break
            if next_change <= next_slot:
                changed = change_pages[change]
                stale[changed] = stale[changed] or next_change > born[changed]
                change += 1
            else:
                if crawled[slot] >= 0:
                    stale[crawled[slot]] = False
                slot += 1
        if now >= max(born[page], start):
            asked[page] += 1
            fresh[page] += not stale[page]


@compiled
def _judged(begin: float, end: float, start: float) -> float:
    """How much of [begin, end] lies after `start`."""
    return max(end, start) - max(begin, start)


@compiled
def _aged(begin: float, end: float, start: float) -> float:
    """∫ (t − begin) dt over what of [begin, end] lies after `start`."""
    before = max(start - begin, 0.0)
    return 0.5 * (max(end - begin, before) ** 2 - before**2)


@compiled
def _spread(bins: Floats, begin: float, end: float, length: float, weight: float) -> None:
    """Add `weight` × time to each bin that [begin, end] overlaps."""
    width = length / bins.size
    first = min(int(begin / width), bins.size - 1)
    last = min(int(end / width), bins.size - 1)
    for index in range(first, last + 1):
        low = max(begin, index * width)
        high = min(end, (index + 1) * width)
        bins[index] += weight * max(high - low, 0.0)


@compiled
def _settle(
    importance: Floats,
    born: Floats,
    held: NDArray[np.bool_],
    change_days: Floats,
    change_pages: Integers,
    slot_days: Floats,
    crawled: Integers,
    start: float,
    length: float,
    stale: Floats,
    penalty: Floats,
    age: Floats,
    crawls: Integers,
    unchanged: Integers,
    oldest: Floats,
    bins: Floats,
    known: Floats,
) -> None:
    count = importance.size
    unseen = np.zeros(count, np.int64)
    height = np.zeros(count)
    since = np.zeros(count)
    stale_since = np.zeros(count)
    last_crawl = born.copy()
    for page in range(count):
        begin = min(max(born[page], start), length)
        _spread(known, begin, length, length, importance[page])
        if not held[page]:
            unseen[page], height[page] = 1, NEVER_HELD_PENALTY
            since[page] = stale_since[page] = born[page]
    change = 0
    for slot in range(slot_days.size + 1):
        now = slot_days[slot] if slot < slot_days.size else length
        while change < change_days.size and change_days[change] <= now:
            page, day = change_pages[change], change_days[change]
            change += 1
            # What changes before a page is known is part of the first copy of it.
            if day <= born[page]:
                continue
            if unseen[page] == 0:
                stale_since[page] = day
            else:
                penalty[page] += height[page] * _judged(since[page], day, start)
            unseen[page] += 1
            height[page] += 1.0 / unseen[page]
            since[page] = day
        if slot == slot_days.size or crawled[slot] < 0:
            continue
        page = crawled[slot]
        crawls[page] += 1
        oldest[page] = max(oldest[page], now - last_crawl[page])
        last_crawl[page] = now
        if unseen[page] == 0:
            unchanged[page] += 1
            continue
        penalty[page] += height[page] * _judged(since[page], now, start)
        stale[page] += _judged(stale_since[page], now, start)
        age[page] += _aged(stale_since[page], now, start)
        _spread(bins, max(stale_since[page], start), max(now, start), length, importance[page])
        unseen[page], height[page] = 0, 0.0
    for page in range(count):
        oldest[page] = max(oldest[page], length - last_crawl[page])
        if unseen[page] > 0 and since[page] < length:
            penalty[page] += height[page] * _judged(since[page], length, start)
            stale[page] += _judged(stale_since[page], length, start)
            age[page] += _aged(stale_since[page], length, start)
            _spread(bins, max(stale_since[page], start), length, length, importance[page])
