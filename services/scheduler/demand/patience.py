"""How long the demand of a shard counts, though something is learned of its pages all the time.

Each crawl and each signal changes what its page asks for, but hardly what all of them do. So pages
may change, as many as did before and left the curve where it was, until it is computed anew. What
is told (pages that come, limits of hosts) is another matter: that may be of many pages at once.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.demand.grids import POINTS_PER_DECADE
from services.scheduler.demand.tally import Demand
from services.scheduler.state.changes import Changes

_LEAST_SHARE: Final = 0.01
"""Part of the pages that may change before the demand is computed anew."""

_MOST_SHARE: Final = 4.0
"""... at most: something was learned of each so often."""

_GROWTH: Final = 2.0
"""So many times as many may change next, where the curve stayed."""

_LITTLE: Final = 0.01
"""A curve that moved by no more than such a part stayed where it was."""

_AROUND: Final = 10.0
"""It is looked at from λ₀ divided by this to λ₀ times this."""

_SECONDS: Final = 20.0
"""After so long the demand is computed anew even if few pages have changed."""

_MOST_SECONDS: Final = 60.0
"""... where the curve stayed."""


def movement(before: Demand, after: Demand, multiplier: float) -> float:
    """By what part the demand of a shard is another than before, at most, at thresholds around λ₀.

    Args:
        before: the demand.
        after: the same later.
        multiplier: λ₀; 0: all thresholds that both have count.

    Returns:
        of the demand at a threshold or at λ₀, whichever is more: above it few pages are left, and
        what these ask for is not what λ₀ goes by. Infinite if not both have thresholds around λ₀.
    """
    first, second = _steps(before.thresholds), _steps(after.thresholds)
    _, of_before, of_after = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    thresholds = after.thresholds[of_after]
    if not thresholds.size or not (multiplier <= 0 or thresholds[0] <= multiplier < thresholds[-1]):
        return np.inf
    were, are = before.unlimited()[of_before], after.unlimited()[of_after]
    usual = were[max(int(np.searchsorted(thresholds, multiplier, side="right")) - 1, 0)]
    if multiplier > 0:
        counts = (thresholds >= multiplier / _AROUND) & (thresholds <= multiplier * _AROUND)
        were, are = were[counts], are[counts]
    by, moved = np.maximum(were, usual), np.abs(are - were)
    parts = np.divide(moved, by, out=np.where(moved > 0.0, np.inf, 0.0), where=by > 0.0)
    return float(parts.max(initial=0.0))


def _steps(thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which points of all grids (`grids.grid`) these are."""
    return np.asarray(np.rint(POINTS_PER_DECADE * np.log10(thresholds)), dtype=np.int64)


class Patience:
    """When the demand of a shard is computed anew, by how much the last passes changed it."""

    def __init__(self) -> None:
        self._share = _LEAST_SHARE

    def note(self, pages: int, learned: int, moved: float) -> None:
        """The demand was computed anew.

        Args:
            pages: of the shard.
            learned: of how many of them something was learned meanwhile.
            moved: see `movement`.
        """
        if moved > _LITTLE:
            self._share = _LEAST_SHARE
        else:
            grown = _GROWTH * learned / max(pages, 1)
            self._share = min(max(self._share, grown), _MOST_SHARE)

    def is_over(self, pages: int, changes: Changes) -> bool:
        """Whether too much has changed since the demand was computed.

        Args:
            pages: of the shard.
            changes: since then.
        """
        return changes.told > _LEAST_SHARE * pages or changes.learned > self._share * pages

    @property
    def seconds(self) -> float:
        """Wall seconds after which the demand is computed anew if anything has changed at all."""
        return _SECONDS if self._share == _LEAST_SHARE else _MOST_SECONDS
