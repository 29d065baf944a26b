"""Time in which something was down, or news were on their way: nobody is blamed for it.

Only what took a worker or a server down counts: kills, stops, pauses, cuts, and schedulers that
come and go, as their shards move. Messages that come twice, late or spoilt are no excuse.
"""

from collections.abc import Sequence
from typing import Final

from services.verify.faults import Injected

NEWS_SECONDS: Final = 3.0
"""A scheduler that is at work knows of what stands on its topics within this, even on a machine
that has much else to do; with four such systems on two cores, 0.7 s were seen."""

Downtimes = Sequence[tuple[float, float]]
"""From when each fault began to when the system had recovered from it, Unix seconds."""


def downtimes_of(injected: Sequence[Injected], *parts: str) -> Downtimes:
    """When some parts of the system were down.

    Args:
        injected: the faults.
        parts: kinds of workers, `broker`, `postgres`.
    """
    return [
        (fault.began, fault.ended if fault.settled is None else fault.settled)
        for fault in injected
        if not fault.hit.isdisjoint(parts)
    ]


def down_within(downtimes: Downtimes, begin: float, end: float) -> float:
    """Seconds of a period in which something was down; periods of faults may overlap."""
    total, reached = 0.0, begin
    for start, stop in sorted(downtimes):
        first, last = max(start, reached), min(stop, end)
        if last > first:
            total, reached = total + last - first, last
    return total
