"""Replays of the peers' schedules: as documented, tuned, and told of importance and signals.

A peer is tuned on the very trace that it is judged by, which favours it. Days of its grid go by
passes, the time in which the budget goes over all pages once: so there is a schedule that fits the
budget, whatever it is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.replay import schedules
from services.replay.schedules import Schedule, run_schedule
from services.replay.trace import SIGNAL, Trace
from shared.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]
Grid = dict[str, tuple[Any, ...]]
"""Field of a schedule → values to try; those of `IN_PASSES` are times the length of a pass."""

IN_PASSES: Final = ("interval_days", "longest_days")

DRAWN: Final = 64
"""Members of a grid that are tried at first."""

CLIMBED: Final = 3
"""So many of them, the best, are bettered field by field."""

_NEVER = 1e9
_HOUR = 1.0 / 24

FIXED = Schedule(schedules.FIXED, 1.0, 0.0, _NEVER)
"""Every page again after a day: Frontera's revisiting backend, Heritrix' rescheduling."""

NUTCH = Schedule(schedules.NUTCH, 30.0, 60 / SECONDS_PER_DAY, 365.0, 0.4, 0.2, 0.3)
"""AdaptiveFetchSchedule with the values of nutch-default.xml."""

STORMCRAWLER = Schedule(schedules.STORMCRAWLER, 1.0, _HOUR, 14.0, 0.5, 0.5)
"""AdaptiveScheduler: a day at first, from an hour to two weeks, rates of one half."""

SOFTWARE_HERITAGE = Schedule(schedules.SOFTWARE_HERITAGE, 4.0, 1.0, _NEVER, early=True)
"""Recurrent visits of origins of which no update is told: by their position in the queue."""

SOFTWARE_HERITAGE_LAG = SOFTWARE_HERITAGE._replace(told_share=49 / 51)
"""The same where updates are told: 49 of 51 visits by lag behind the last update, 2 by queue.

Software Heritage learns of updates when it lists a forge anew; here every signal tells at once.
"""

ROUND_ROBIN = Schedule(schedules.FIXED, 30.0, 0.0, _NEVER, early=True)
"""All pages equally often: always the page that was crawled longest ago."""


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """A schedule, and the grid of parameters that tune it; empty: as it is."""

    schedule: Schedule
    grid: Grid = field(default_factory=dict)

    @property
    def heeds_signals(self) -> bool:
        """Whether it goes by signals."""
        return self.schedule.told_share > 0.0 or "told_share" in self.grid

    def tuned(
        self, staleness: Callable[[Schedule], float], pass_days: float, rng: np.random.Generator
    ) -> Schedule:
        """The best schedule of the grid, as far as was found.

        Tried are the schedule as it is documented, and `DRAWN` members of the grid (all, where it
        has no more). From the best `CLIMBED` of these on, one field after the other is given all
        its values, until none brings anything.

        Args:
            staleness: of a schedule.
            pass_days: how long the budget takes to go over all pages once.
            rng: draws.
        """
        fields = {
            name: tuple(value * pass_days for value in values) if name in IN_PASSES else values
            for name, values in self.grid.items()
        }
        found: dict[Schedule, float] = {}

        def best_of(tried: list[Schedule]) -> Schedule:
            found.update((one, staleness(one)) for one in tried if one not in found)
            return min(tried, key=found.__getitem__)

        best_of([self.schedule, *self._drawn(fields, rng)])
        for start in sorted(found, key=found.__getitem__)[:CLIMBED]:
            before, best = None, start
            while best != before:
                before = best
                for name, values in fields.items():
                    best = best_of([best, *(best._replace(**{name: value}) for value in values)])
        return min(found, key=found.__getitem__)

    def _drawn(self, fields: Grid, rng: np.random.Generator) -> list[Schedule]:
        """Members of the grid."""
        sizes = [len(values) for values in fields.values()]
        total = math.prod(sizes)
        chosen = np.arange(total)
        if total > DRAWN:
            chosen = rng.choice(total, DRAWN, replace=False)
        places = np.unravel_index(chosen, sizes) if sizes else ()
        return [
            self.schedule._replace(
                **{name: fields[name][i] for name, i in zip(fields, member, strict=True)}
            )
            for member in np.transpose(places).tolist()
        ]


EARLY: Grid = {"early": (False, True)}
"""Slots in which nothing is due are lost, or given to what is due next."""

SCORED: Grid = {"by_importance": (False, True)}
"""Of pages that are due the most important may come first, as Nutch's generator sorts by score."""

AT_BEST: Grid = {
    "told_share": (0.25, 0.5, 0.75, 0.9, 49 / 51, 1.0),
    "told_by_importance": (False, True),
} | SCORED
"""More than any peer has: pages that sent a signal come first, then the important ones, then those
that wait longest; or in whatever order is better."""

POLLED: Grid = {"poll_share": (0.05, 0.1, 0.2, 0.4, 0.6)}
"""Where signals are known by polls alone, and polls cost crawls."""

INTERVALS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
LONGEST = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

NUTCH_GRID: Grid = EARLY | {
    "interval_days": INTERVALS,
    "longest_days": LONGEST,
    "increase": (0.1, 0.2, 0.4, 0.8),
    "decrease": (0.1, 0.2, 0.4, 0.8),
    "sync_delta": (0.0, 0.3),
}
STORMCRAWLER_GRID: Grid = EARLY | {
    "interval_days": INTERVALS,
    "longest_days": LONGEST,
    "increase": (0.1, 0.2, 0.5, 1.0),
    "decrease": (0.1, 0.2, 0.5, 0.8),
}
FIXED_GRID: Grid = EARLY | {"interval_days": INTERVALS}
SOFTWARE_HERITAGE_GRID: Grid = {"longest_days": LONGEST}
SOFTWARE_HERITAGE_LAG_GRID: Grid = {"told_share": AT_BEST["told_share"]}


def run_by_schedule(
    trace: Trace,
    slot_days: Floats,
    schedule: Schedule,
    seed: int,
    about_days: Floats | None = None,
) -> NDArray[np.int64]:
    """Replay `trace`; the page of each slot, −1 where nothing was due.

    `about_days` of each signal is the day that it is about; absent: the day on which it comes.
    """
    crawled = np.full(slot_days.size, -1, np.int64)
    days, pages, kinds = trace.merged_events()
    about = days.copy()
    if about_days is not None:
        about[kinds == SIGNAL] = about_days
    run_schedule(
        schedule,
        np.random.default_rng([seed, 8]),
        trace.importance,
        trace.host,
        trace.born_days,
        trace.held,
        trace.host_limit,
        slot_days,
        days,
        pages,
        kinds,
        about,
        crawled,
    )
    return crawled
