"""The scenario `polled`: rhythms of polls compared on one trace, at one budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.replay.books import settle
from services.replay.by_polls import ByValue, Fixed, PolledRun, Rhythm, sources_of
from services.replay.slots import Budget
from services.replay.trace import Trace
from services.replay.version import code_version

GRID_DAYS: Final = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)
"""Fixed intervals that polls by value are compared with."""

BY_VALUE: Final = "by-value"

Told = Callable[[str], None]
"""Called with the name of each rhythm before its replay."""


@dataclass(frozen=True, slots=True)
class PolledComparison:
    """What came of each rhythm."""

    rows: list[dict[str, Any]]
    """The freshest first."""
    about: dict[str, Any]

    @property
    def share_of_best_fixed(self) -> float | None:
        """Staleness by value over that of the best fixed interval; None: none was compared."""
        found = {row["rhythm"]: float(row["staleness"]) for row in self.rows}
        fixed = [staleness for name, staleness in found.items() if name != BY_VALUE]
        return found[BY_VALUE] / min(fixed) if fixed else None

    def report(self) -> dict[str, Any]:
        """The comparison for JSON."""
        return {"rhythms": self.rows, "share_of_best_fixed": self.share_of_best_fixed} | self.about


def compare_rhythms(
    trace: Trace,
    budget: Budget,
    every_days: Sequence[float] = GRID_DAYS,
    *,
    by_host: bool,
    told: Told | None = None,
) -> PolledComparison:
    """Replay polls by value, and polls at fixed intervals.

    Args:
        trace: what happens.
        budget: of crawls and polls together.
        every_days: the fixed intervals.
        by_host: each host has a source of its own; else each site has one.
        told: of progress.
    """
    rhythms: dict[str, Rhythm] = {BY_VALUE: ByValue()}
    rhythms |= {f"every {days:g} days": Fixed(days) for days in every_days}
    slots = budget.slot_times(trace.days)
    source = sources_of(trace, by_host=by_host)
    rows = []
    for name, rhythm in rhythms.items():
        if told is not None:
            told(name)
        run = PolledRun(trace, slots, source, rhythm)
        books = settle(trace, slots, run.run())
        polls = int(run.polls.sum())
        row = {"rhythm": name, "staleness": books.staleness, "polls": polls}
        rows.append(row | {"crawls": int(books.crawls.sum())})
    about = {
        "source_per": "host" if by_host else "site",
        "sources": int((run.polls > 0).sum()),
        "crawls_per_day": [list(step) for step in budget.steps],
        "days": trace.days,
        "pages": len(trace),
        "code_version": code_version(),
    }
    return PolledComparison(sorted(rows, key=lambda row: float(str(row["staleness"]))), about)
