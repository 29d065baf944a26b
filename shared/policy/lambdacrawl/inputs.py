"""Checked columns of pages for the policies of this package."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Pages(NamedTuple):
    """Columns of shape (pages,): what every policy needs to know."""

    importance: Floats
    """μ ≥ 0, dimensionless."""
    change_rate: Floats
    """Δ ≥ 0, per day."""
    complete: Mask
    """True where every change sends a signal and every signal is true: [K]'s W°."""


def checked_pages(importance: Any, change_rate: Any, complete: Any = None) -> Pages:
    """Convert columns; `complete` defaults to none.

    Raises ValueError naming the first page whose importance or change rate is negative, NaN or
    infinite, or the shapes if they differ.
    """
    weights = np.ascontiguousarray(importance, dtype=np.float64)
    rates = np.ascontiguousarray(change_rate, dtype=np.float64)
    flags = np.zeros(weights.shape, dtype=np.bool_) if complete is None else np.asarray(complete)
    if weights.ndim != 1 or rates.shape != weights.shape or flags.shape != weights.shape:
        raise ValueError(
            f"importance {weights.shape}, change_rate {rates.shape} and complete {flags.shape} "
            "must be columns of one length"
        )
    for name, column in (("importance", weights), ("change_rate", rates)):
        good = np.isfinite(column) & (column >= 0)
        if not good.all():
            page = int(np.argmin(good))
            raise ValueError(f"page {page}: {name} is {column[page]}, must be finite and ≥ 0")
    return Pages(weights, rates, np.ascontiguousarray(flags, dtype=np.bool_))


def checked_rates(rates: Any, pages: Pages) -> Floats:
    """Convert a policy's crawl rates (pages,), per day.

    Raises ValueError naming the first page whose rate is negative or NaN, or whose signals are
    complete and whose rate exceeds its change rate.
    """
    column = np.ascontiguousarray(rates, dtype=np.float64)
    if column.shape != pages.importance.shape:
        raise ValueError(f"rates are {column.shape}, the pages {pages.importance.shape}")
    good = (column >= 0) & (~pages.complete | (column <= pages.change_rate * (1 + 1e-12)))
    if not good.all():
        page = int(np.argmin(good))
        raise ValueError(
            f"page {page}: crawl rate is {column[page]} a day, must be ≥ 0, and at most the "
            f"change rate ({pages.change_rate[page]}) where signals are complete"
        )
    return column


def checked_bandwidth(bandwidth: float) -> float:
    """Raises ValueError unless `bandwidth` (crawls per day) is positive and finite."""
    if not 0 < bandwidth < math.inf:
        raise ValueError(f"bandwidth is {bandwidth} crawls a day, must be positive and finite")
    return float(bandwidth)
