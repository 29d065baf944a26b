"""The page model: what is known of each page, and the conversions between its three forms.

The package computes with (α, κ, γ).  The rates (Δ, recall, ν) are what one thinks in, and the
database shows (α, β, γ, precision).  Sources: [N] section 2; β and precision as in [N] section 3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Column = NDArray[np.float64]


class InvalidPage(ValueError):
    """A page's parameters are outside the model; the message names page, value and remedy."""


def as_column(values: ArrayLike) -> Column:
    """``values`` as a contiguous column of float64."""
    return np.ascontiguousarray(values, dtype=np.float64).reshape(-1)


def as_columns(*values: ArrayLike) -> list[Column]:
    """``values`` as columns of one length; single numbers are repeated for every page.

    Raises ``ValueError`` where lengths differ.  Columns that fit already are not copied.
    """
    columns = [as_column(value) for value in values]
    length = max((len(column) for column in columns if len(column) != 1), default=1)
    if any(len(column) == 0 for column in columns):
        length = 0
    if any(len(column) not in {1, length} for column in columns):
        raise ValueError(
            f"columns of lengths {[len(column) for column in columns]}; give every column one "
            "row a page, or a single number for all pages"
        )
    return [column if len(column) == length else np.full(length, column[0]) for column in columns]


@dataclass(frozen=True, slots=True)
class PageParameters:
    """Columns of equal length, one row a page.

    ``importance`` μ ≥ 0, dimensionless; ``alpha`` α ≥ 0, changes per day that no signal announces;
    ``kappa`` κ in [0, ∞], what one signal adds to the staleness exponent (∞: signals never lie);
    ``gamma`` γ ≥ 0, signals per day.
    """

    importance: Column
    alpha: Column
    kappa: Column
    gamma: Column

    @classmethod
    def from_columns(
        cls, importance: ArrayLike, alpha: ArrayLike, kappa: ArrayLike, gamma: ArrayLike
    ) -> "PageParameters":
        """Parameters from anything array-like; single numbers are repeated for every page."""
        return cls(*as_columns(importance, alpha, kappa, gamma))

    @classmethod
    def from_rates(
        cls,
        importance: ArrayLike,
        change_rate: ArrayLike,
        recall: ArrayLike,
        false_signal_rate: ArrayLike,
    ) -> "PageParameters":
        """From Δ (changes per day), recall λ in [0, 1] and ν (false signals per day)."""
        changes, share, noise = as_columns(change_rate, recall, false_signal_rate)
        true_signals = share * changes
        kappa = np.full(len(noise), np.inf)
        np.divide(true_signals, noise, out=kappa, where=noise > 0)
        kappa = np.where((true_signals == 0) & (noise == 0), 0.0, np.log1p(kappa))
        return cls.from_columns(importance, (1.0 - share) * changes, kappa, true_signals + noise)

    @classmethod
    def from_display(
        cls, importance: ArrayLike, alpha: ArrayLike, beta: ArrayLike, gamma: ArrayLike
    ) -> "PageParameters":
        """From (α, β, γ) with β = κ/α days per signal.

        Where α = 0, or κ is infinite, β is infinite and κ cannot be told: it becomes infinite.
        """
        rate, days = as_columns(alpha, beta)
        kappa = np.full(rate.shape, np.inf)
        np.multiply(rate, days, out=kappa, where=np.isfinite(days))
        return cls.from_columns(importance, rate, kappa, gamma)

    def __len__(self) -> int:
        return len(self.importance)

    def __getitem__(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> "PageParameters":
        """The pages at ``rows`` (an index array, mask or slice)."""
        return PageParameters(
            self.importance[rows], self.alpha[rows], self.kappa[rows], self.gamma[rows]
        )

    @property
    def precision(self) -> Column:
        """The share of signals with a change behind them, 1 − e^{−κ}."""
        return -np.expm1(-self.kappa)

    @property
    def change_rate(self) -> Column:
        """Δ = α + γ·precision, changes per day."""
        return self.alpha + self.gamma * self.precision

    @property
    def recall(self) -> Column:
        """The share of changes that send a signal, γ·precision/Δ; 0 for pages without changes."""
        changes = self.change_rate
        recall = np.zeros(len(self))
        return np.divide(self.gamma * self.precision, changes, out=recall, where=changes > 0)

    @property
    def false_signal_rate(self) -> Column:
        """ν = γe^{−κ}, signals per day without a change behind them."""
        return self.gamma * np.exp(-self.kappa)

    @property
    def beta(self) -> Column:
        """β = κ/α, the days without a crawl that one signal counts for; infinite where α = 0."""
        beta = np.full(len(self), np.inf)
        np.divide(self.kappa, self.alpha, out=beta, where=self.alpha > 0)
        return np.where(self.kappa == 0, 0.0, beta)

    @property
    def highest_value(self) -> Column:
        """μ/Δ, what the crawl value tends to; infinite where an important page never changes."""
        changes = self.change_rate
        highest = np.where(self.importance > 0, np.inf, 0.0)
        return np.divide(self.importance, changes, out=highest, where=changes > 0)

    def validate(self, page_ids: Sequence[object] | None = None) -> None:
        """Raise :class:`InvalidPage` for the first page outside the model.

        ``page_ids`` names the pages in the message; without it the row number does.
        """
        lengths = {len(column) for column in (self.alpha, self.kappa, self.gamma)}
        if lengths != {len(self)}:
            raise InvalidPage(
                f"columns of different lengths: importance {len(self)}, alpha {len(self.alpha)}, "
                f"kappa {len(self.kappa)}, gamma {len(self.gamma)}; give every page all four"
            )
        for name, unit, infinite in (
            ("importance", "a finite weight of 0 or more", False),
            ("alpha", "a finite rate of 0 or more changes per day", False),
            ("kappa", "0 or more (infinite for signals that never lie)", True),
            ("gamma", "a finite rate of 0 or more signals per day", False),
        ):
            column: Column = getattr(self, name)
            good = (column >= 0) if infinite else (column >= 0) & np.isfinite(column)
            if not good.all():
                row = int(np.argmin(good))
                raise InvalidPage(_complaint(name, float(column[row]), unit, row, page_ids))


def _complaint(
    name: str, value: float, unit: str, row: int, page_ids: Sequence[object] | None
) -> str:
    page = f"row {row}" if page_ids is None else f"{page_ids[row]!r} (row {row})"
    kind = "not a number" if math.isnan(value) else repr(value)
    return f"page {page}: {name} is {kind}; it must be {unit}. Correct or remove the page"
