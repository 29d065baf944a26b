"""How soon after each fault the crawls were back at the budget, seen on the topic."""

import statistics
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.verify.checks.finding import Finding
from services.verify.faults import SOFT, Injected
from services.verify.ledger import Ledger

REACHED_SHARE: Final = 0.9
"""A second with this share of the budget's crawls is at the budget."""

WINDOW_SECONDS: Final = 1.0
STEP_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 2.5
"""After a change of the budget either rate will do."""

ON_THE_WAY_SECONDS: Final = 1.0
"""A request that is with the broker so soon counts at its slot. Else some that a crowded machine
sends a moment late, a minute after a fault, would pass for that fault's."""

PATIENCE_SECONDS: Final = 45.0
"""A system that is not at its budget by then has not recovered."""


def recovery(
    ledger: Ledger, injected: Sequence[Injected], changes: Sequence[tuple[float, float]], end: float
) -> Finding:
    """Measure each fault's recovery: from its end to the last second below the budget.

    Args:
        ledger: of the run.
        injected: the faults.
        changes: when the budget was set (Unix seconds), and to how many crawls per second.
        end: Unix seconds at which the budget was taken away.
    """
    slots = np.array([asked.request.requested_at for asked in ledger.requests])
    written = np.array([asked.written_at for asked in ledger.requests])
    arrivals = np.sort(np.where(written - slots > ON_THE_WAY_SECONDS, written, slots))
    hard = sorted((f for f in injected if f.kind not in SOFT), key=lambda fault: fault.began)
    seconds: dict[str, list[float]] = {}
    for index, fault in enumerate(hard):
        until = hard[index + 1].began if index + 1 < len(hard) else end
        if until <= fault.ended:
            continue  # another came on top of it: the last one tells
        low = _last_below(arrivals, changes, fault.began, until)
        seconds.setdefault(fault.kind, []).append(max(low - fault.ended, 0.0))
    everything = [one for of_kind in seconds.values() for one in of_kind]
    never = [f"{f.what}: not back at the budget" for f in hard if f.settled is None]
    late = [f"{one:.1f} s until back" for one in everything if one > PATIENCE_SECONDS]
    return Finding.of(
        "recovery",
        f"the system is back at its budget within {PATIENCE_SECONDS:.0f} s after each fault",
        never + late,
        looked_at=len(hard),
        **_summary(everything),
        by_fault={kind: _summary(of_kind) for kind, of_kind in sorted(seconds.items())},
    )


def _last_below(
    arrivals: NDArray[np.float64],
    changes: Sequence[tuple[float, float]],
    begin: float,
    until: float,
) -> float:
    """End of a period's last second with too few crawls; its beginning if there is none."""
    ends = np.arange(begin + WINDOW_SECONDS, until, STEP_SECONDS)
    counts = np.searchsorted(arrivals, ends) - np.searchsorted(arrivals, ends - WINDOW_SECONDS)
    wanted = np.array([_least_rate(changes, end - WINDOW_SECONDS, end) for end in ends.tolist()])
    low = np.flatnonzero(counts < REACHED_SHARE * wanted * WINDOW_SECONDS)
    return float(ends[low[-1]]) if low.size else begin


def _least_rate(changes: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """The least budget in a period and shortly before it."""
    least: float | None = None
    for time, rate in changes:
        if time > end:
            break
        holds_alone = time <= begin - SETTLE_SECONDS or least is None
        least = rate if holds_alone or least is None else min(least, rate)
    return least or 0.0


def _summary(seconds: Sequence[float]) -> dict[str, Any]:
    if not seconds:
        return {"faults": 0, "p50_seconds": None, "p99_seconds": None, "max_seconds": None}
    return {
        "faults": len(seconds),
        "p50_seconds": round(statistics.median(seconds), 2),
        "p99_seconds": round(float(np.quantile(seconds, 0.99)), 2),
        "max_seconds": round(max(seconds), 2),
    }
