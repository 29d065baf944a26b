"""The thresholds at which shards say what they ask for: the same points in all of them."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.kernels.rate_tables import STEPS_PER_DECADE

POINTS: Final = 48
POINTS_PER_DECADE: Final = STEPS_PER_DECADE
"""Thresholds are 10^(k/8) in every shard, so that curves add point by point."""

_WITHIN_A_DECADE: Final = (
    *("1", "1.333521432163324", "1.7782794100389228", "2.371373705661655"),
    *("3.1622776601683795", "4.216965034285822", "5.623413251903491", "7.498942093324558"),
)

_NEAR_THE_END: Final = 12
"""With fewer points than this below λ₀ the grid is moved."""

_ABOVE_MULTIPLIER: Final = 24
"""Points above λ₀ where the grid has to be moved down to reach it."""


def grid(highest: float, multiplier: float) -> NDArray[np.float64]:
    """Thresholds: six decades below the highest crawl value there is, or around λ₀."""
    top = _step_above(highest) if highest > 0 else 0
    if _is_near(top - POINTS + 1, multiplier):
        top = _step_above(multiplier) + _ABOVE_MULTIPLIER
    return np.array([_point(step) for step in range(top - POINTS + 1, top + 1)])


def _point(step: int) -> float:
    """A point of all grids, the same number on every machine: decimals are read alike everywhere,
    and of powers processors make what differs in the last bit."""
    decade, place = divmod(step, POINTS_PER_DECADE)
    return float(f"{_WITHIN_A_DECADE[place]}e{decade}")


def is_near_the_end(thresholds: NDArray[np.float64], multiplier: float) -> bool:
    """Whether a grid ends so near below λ₀ that another one is needed, as `grid` makes it."""
    return _is_near(round(POINTS_PER_DECADE * math.log10(thresholds[0])), multiplier)


def _is_near(lowest_step: int, multiplier: float) -> bool:
    return multiplier > 0 and _step_above(multiplier) < lowest_step + _NEAR_THE_END


def _step_above(value: float) -> int:
    return math.ceil(POINTS_PER_DECADE * math.log10(value))
