"""Replays of the peers' schedules: documented defaults, the grids that tune them, round robin."""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.replay import schedules
from services.replay.schedules import Schedule, run_schedule
from services.replay.trace import Trace
from shared.units import SECONDS_PER_DAY

_NEVER = 1e9
_HOUR = 1.0 / 24

FIXED = Schedule(schedules.FIXED, 1.0, 0.0, _NEVER, 0.0, 0.0, 0.0, False, False, 0.0)
"""Every page again after a day: Frontera's revisiting backend, Heritrix' rescheduling."""

NUTCH = Schedule(
    schedules.NUTCH, 30.0, 60 / SECONDS_PER_DAY, 365.0, 0.4, 0.2, 0.3, False, False, 0.0
)
"""AdaptiveFetchSchedule with the values of nutch-default.xml."""

STORMCRAWLER = Schedule(schedules.STORMCRAWLER, 1.0, _HOUR, 14.0, 0.5, 0.5, 0.0, False, False, 0.0)
"""AdaptiveScheduler: a day at first, from an hour to two weeks, rates of one half."""

SOFTWARE_HERITAGE = Schedule(
    schedules.SOFTWARE_HERITAGE, 4.0, 1.0, _NEVER, 0.0, 0.0, 0.0, True, False, 0.0
)
"""Recurrent visits of origins of which no update is told: by their position in the queue."""

SOFTWARE_HERITAGE_LAG = SOFTWARE_HERITAGE._replace(lag_share=49 / 51)
"""The same where updates are told: 49 of 51 visits by lag behind the last update, 2 by queue.

Software Heritage learns of updates when it lists a forge anew; here every signal tells at once.
"""

ROUND_ROBIN = Schedule(schedules.FIXED, 30.0, 0.0, _NEVER, 0.0, 0.0, 0.0, True, False, 0.0)
"""All pages equally often: always the page that was crawled longest ago."""


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """A schedule, and the grid of parameters that tune it (field → values); empty: as it is."""

    schedule: Schedule
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def variants(self) -> list[Schedule]:
        """Every schedule of the grid."""
        names = tuple(self.grid)
        return [
            self.schedule._replace(**dict(zip(names, values, strict=True)))
            for values in product(*self.grid.values())
        ]


NUTCH_GRID: dict[str, tuple[Any, ...]] = {
    "interval_days": (7.0, 30.0, 90.0),
    "increase": (0.2, 0.4),
    "decrease": (0.2, 0.4),
    "sync_delta": (0.0, 0.3),
    "early": (True,),
}
BY_SCORE = {"by_importance": (True,)}
"""Of the pages that are due the most important first, as Nutch's generator sorts by score."""

STORMCRAWLER_GRID: dict[str, tuple[Any, ...]] = {
    "interval_days": (1.0, 30.0),
    "longest_days": (14.0, 90.0, 365.0),
    "increase": (0.2, 0.5, 1.0),
    "decrease": (0.2, 0.5),
    "early": (True,),
}
FIXED_GRID: dict[str, tuple[Any, ...]] = {
    "interval_days": (1.0, 7.0, 30.0, 90.0, 365.0),
    "early": (False, True),
}
SOFTWARE_HERITAGE_LAG_GRID: dict[str, tuple[Any, ...]] = {
    "lag_share": (0.25, 0.5, 0.75, 0.9, 49 / 51, 1.0),
}
SOFTWARE_HERITAGE_GRID: dict[str, tuple[Any, ...]] = {
    "longest_days": (32.0, 128.0, 512.0, _NEVER),
}


def run_by_schedule(
    trace: Trace, slot_days: NDArray[np.float64], schedule: Schedule, seed: int
) -> NDArray[np.int64]:
    """Replay `trace`; the page of each slot, −1 where nothing was due."""
    crawled = np.full(slot_days.size, -1, np.int64)
    run_schedule(
        schedule,
        np.random.default_rng([seed, 8]),
        trace.importance,
        trace.host,
        trace.born_days,
        trace.held,
        trace.host_limit,
        slot_days,
        *trace.merged_events(),
        crawled,
    )
    return crawled
