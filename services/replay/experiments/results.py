"""What an experiment yields: numbers with standard errors, ready for JSON and for a picture."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from services.replay.polite_crawling import PoliteCrawling

Told = Callable[[float], None]
"""Called with the share of the experiment that is done."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large an experiment is made."""

    repetitions: int = 10
    seed: int = 0
    pages: int = 10_000
    """Of the populations with the shape of a real dataset."""
    dataset: PoliteCrawling | None = None
    """[K]'s own pages, of which `pages` are drawn in place of generated ones (k1, k2, k3)."""

    def rng(self, *stream: int) -> np.random.Generator:
        """Independent random numbers for each repetition and stream."""
        return np.random.default_rng([self.seed, *stream])


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or cloud, of a figure."""

    label: str
    x: list[Any]
    """Numbers, or names of bars."""
    mean: list[float]
    standard_error: list[float] = field(default_factory=list)
    """Of each mean; empty for a cloud of single observations."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure."""

    name: str
    title: str
    x_label: str
    y_label: str
    kind: str
    """lines, bars or points."""
    series: list[Series]
    notes: str = ""

    def report(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "kind": self.kind,
            "notes": self.notes,
            "series": {
                line.label: {"x": line.x, "mean": line.mean, "standard_error": line.standard_error}
                for line in self.series
            },
        }


def summarised(label: str, x: list[Any], repetitions: ArrayLike) -> Series:
    """A line from `repetitions` of shape (repetitions, points): means and their standard errors."""
    values = np.asarray(repetitions, dtype=np.float64)
    spread = np.zeros(values.shape[1])
    finite = np.isfinite(values).all(axis=0)
    if values.shape[0] > 1:
        spread[finite] = values[:, finite].std(axis=0, ddof=1) / np.sqrt(values.shape[0])
    return Series(label, x, values.mean(axis=0).tolist(), spread.tolist())
