"""The true state of every page, and the exact account of how fresh the held copies are."""

import math

import numpy as np
from numpy.typing import NDArray

from services.world.events import EventStream


class Web:
    """Which held copies are stale, since when, and the importance-weighted time that this makes.

    A copy is stale from the page's first change after its last crawl until the next crawl. A page
    that was never crawled is stale from day 0. Time only goes forward: crawls are told in order.
    Times are days since the beginning; the account ends at `end`.
    """

    def __init__(
        self,
        importance: NDArray[np.float64],
        held: NDArray[np.bool_],
        stream: EventStream,
        end: float = math.inf,
    ) -> None:
        self.day = 0.0
        """How far the web is known."""
        self.daily_staleness: list[float] = []
        """Importance-weighted mean staleness of each whole day that has passed."""
        self.end = end
        self._importance = importance
        self._total_importance = float(importance.sum())
        self._stream = stream
        self._stale_since = np.where(held, np.inf, 0.0)
        self._stale_weight = self._stale_moment = 0.0
        """Σμ and Σμ·since over the stale copies: so the account costs nothing to look at."""
        self._sum_up()
        self._versions = np.zeros(importance.size, np.int64)
        self._settled = 0.0
        self._before_today = 0.0

    def advance(self, day: float) -> None:
        """Let changes happen up to and with a day."""
        while self.day < day:
            midnight = math.floor(self.day) + 1.0
            step = min(midnight, day)
            self._apply_changes(step)
            self.day = step
            if step == midnight and step <= self.end:
                self._sum_up()
                stale = self._stale_weight_days(step)
                self.daily_staleness.append((stale - self._before_today) / self._total_importance)
                self._before_today = stale

    def crawl(self, pages: NDArray[np.int64], day: float) -> NDArray[np.bool_]:
        """Crawl pages at one moment.

        Args:
            pages: page numbers, (n,); a page that is there twice is crawled twice.
            day: not before any earlier call's.

        Returns:
            whether each page has changed since its last crawl, (n,).
        """
        self.advance(day)
        changed = self._stale_since[pages] <= self.day
        _, first = np.unique(pages, return_index=True)
        repeated = np.ones(pages.size, np.bool_)
        repeated[first] = False
        changed &= ~repeated
        stale = pages[changed]
        self._settled += self._stale_time(stale, self.day)
        self._note_stale(stale, -1.0)
        self._stale_since[stale] = np.inf
        return np.asarray(changed, dtype=np.bool_)

    def versions(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often pages have changed: what a digest of their content would tell apart."""
        return self._versions[pages]

    def staleness(self) -> float:
        """Importance-weighted mean over time so far of the share of stale copies; 0 at day 0."""
        day = min(self.day, self.end)
        if day <= 0:
            return 0.0
        return self._stale_weight_days(day) / (self._total_importance * day)

    def staleness_now(self) -> float:
        """Importance-weighted share of copies that are stale at this moment."""
        return max(self._stale_weight, 0.0) / self._total_importance

    def _apply_changes(self, until: float) -> None:
        changes = self._stream.changes(until)
        if not len(changes):
            return
        np.add.at(self._versions, changes.pages, 1)
        fresh = np.isinf(self._stale_since[changes.pages])
        pages, days = changes.pages[fresh], changes.days[fresh]
        # Backwards, so that a page's earliest change is the one that stays.
        self._stale_since[pages[::-1]] = days[::-1]
        self._note_stale(np.unique(pages), 1.0)

    def _note_stale(self, pages: NDArray[np.int64], sign: float) -> None:
        """Pages are stale now, or (−1) no longer."""
        weights = self._importance[pages]
        self._stale_weight += sign * float(weights.sum())
        self._stale_moment += sign * float(weights @ self._stale_since[pages])

    def _sum_up(self) -> None:
        """Begin the sums anew: what was rounded away since must not grow with the run."""
        self._stale_weight = self._stale_moment = 0.0
        self._note_stale(np.flatnonzero(np.isfinite(self._stale_since)), 1.0)

    def _stale_weight_days(self, day: float) -> float:
        if self.day <= self.end:
            return self._settled + self._stale_weight * day - self._stale_moment
        stale = np.flatnonzero(np.isfinite(self._stale_since))
        return self._settled + self._stale_time(stale, day)

    def _stale_time(self, pages: NDArray[np.int64], day: float) -> float:
        since = np.minimum(self._stale_since[pages], self.end)
        return float(self._importance[pages] @ (min(day, self.end) - since))
