"""Time in which something was down, and for which nobody is blamed."""

from collections.abc import Sequence

Downtimes = Sequence[tuple[float, float]]
"""From when each fault began to when the system had recovered from it, Unix seconds."""


def down_within(downtimes: Downtimes, begin: float, end: float) -> float:
    """Seconds of a period in which something was down; periods of faults may overlap."""
    total, reached = 0.0, begin
    for start, stop in sorted(downtimes):
        first, last = max(start, reached), min(stop, end)
        if last > first:
            total, reached = total + last - first, last
    return total
