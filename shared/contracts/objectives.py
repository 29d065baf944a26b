"""What pages are crawled for, as operators say it, and as one byte says it.

`shared.policy.objectives` has what each of them costs, and what a crawl is worth under it.
"""

import math
from typing import Final, TypeAlias

FRESHNESS: Final = 0
MOST_AGE: Final = 100
"""Codes from 1 to here are the weight of age in hundredths."""

HARMONIC: Final = 255

DEFAULT: Final = "default"
"""Stands for all hosts that no name is for."""

Told: TypeAlias = str | dict[str, float]
"""An objective as operators say it: freshness, harmonic, or {"age": weight}."""

_NAMES: Final = {"freshness": FRESHNESS, "harmonic": HARMONIC}
_ROUNDING: Final = 1e-6


def objective_code(told: Told) -> int:
    """The code of an objective.

    Raises:
        ValueError: it is none; says what is wrong.
    """
    if isinstance(told, str) and told in _NAMES:
        return _NAMES[told]
    if isinstance(told, str) or set(told) != {"age"}:
        raise ValueError(f'{told!r} is none of freshness, harmonic and {{"age": weight}}')
    weight = told["age"]
    if not (math.isfinite(weight) and 0.0 <= weight <= 1.0):
        raise ValueError(f"the weight of age is {weight:g}, and must be between 0 and 1")
    hundredths = round(weight * MOST_AGE)
    if abs(weight * MOST_AGE - hundredths) > _ROUNDING:
        raise ValueError(f"the weight of age is {weight:g}, and must be in whole hundredths")
    return hundredths


def objective_name(code: int) -> str:
    """How people are told of an objective."""
    if code == FRESHNESS:
        return "freshness"
    return "harmonic" if code == HARMONIC else f"age {code / MOST_AGE:g}"
