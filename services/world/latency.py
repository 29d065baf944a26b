"""Latencies of any number of messages, in a fixed space."""

import math

import numpy as np
from numpy.typing import ArrayLike

LOWEST_SECONDS = 1e-4
BINS_PER_DECADE = 100
"""A quantile is exact to 2.3 %."""

_DECADES = 8


class LatencyHistogram:
    """Counts durations in logarithmic bins from 0.1 ms to three hours; the ends take the rest."""

    def __init__(self) -> None:
        self._counts = np.zeros(_DECADES * BINS_PER_DECADE, np.int64)

    def add(self, seconds: ArrayLike) -> None:
        """Count durations; negative ones (clocks that differ) count as none."""
        values = np.maximum(np.atleast_1d(np.asarray(seconds, np.float64)), LOWEST_SECONDS)
        bins = np.floor(np.log10(values / LOWEST_SECONDS) * BINS_PER_DECADE).astype(np.int64)
        np.add.at(self._counts, np.minimum(bins, self._counts.size - 1), 1)

    @property
    def count(self) -> int:
        """How many were added."""
        return int(self._counts.sum())

    def quantile(self, share: float) -> float | None:
        """Seconds that a share of the durations does not exceed; None where there are none."""
        total = int(self._counts.sum())
        if not total:
            return None
        rank = min(max(math.ceil(share * total), 1), total)
        bin_ = int(np.searchsorted(np.cumsum(self._counts), rank))
        middle = 10 ** ((bin_ + 0.5) / BINS_PER_DECADE)
        return float(LOWEST_SECONDS * middle)

    def summary(self) -> dict[str, float | int | None]:
        """`p50` and `p99` in seconds, and the count."""
        return {
            "p50": _rounded(self.quantile(0.5)),
            "p99": _rounded(self.quantile(0.99)),
            "count": self.count,
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.3g}")
