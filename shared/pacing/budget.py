"""The budget over time: constant, in ramps, or by the time of day. Pure.

What an operator sets stands in one `bandwidth` message, and the rate at any moment follows from it
alone: whoever reads it, at whatever moment, comes to the same.
"""

import datetime as dt
import math
import zoneinfo
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth
from shared.units import SECONDS_PER_DAY

UTC: Final = "UTC"

_DAYS_AROUND: Final = (-2, -1, 0, 1, 2)
"""Days in which the changes before and after a moment are looked for."""

_LATEST: Final = 2.5e11
"""Unix seconds that the calendar still knows (year 9892)."""

_SAME: Final = 1e-6
"""Rates that differ by less, relatively, are one and the same: a ramp is computed in many ways."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """How the budget goes on from a moment."""

    rate: float
    """R then, crawls per second of the clock."""
    ramp_to: float = 0.0
    """R at the end of the ramp, and from then on."""
    ramp_seconds: float = 0.0
    """How long the ramp still is; 0: there is none, and `rate` stays."""

    @property
    def final(self) -> float:
        """R when a ramp is over."""
        return self.ramp_to if self.ramp_seconds > 0 else self.rate

    def rate_after(self, seconds: float) -> float:
        """R some seconds later."""
        part = min(seconds / self.ramp_seconds, 1.0) if self.ramp_seconds > 0 else 0.0
        return self.rate + part * (self.ramp_to - self.rate)

    def is_same(self, other: "Stretch") -> bool:
        """Whether another begins and ends alike."""
        scale = max(self.rate, self.final, other.rate, other.final)
        apart = max(abs(self.rate - other.rate), abs(self.final - other.final))
        return apart <= _SAME * scale


@dataclass(frozen=True, slots=True)
class Budget:
    """R at every moment, as the operators set it."""

    constant: float
    set_at: float
    ramp_from: float
    ramp_seconds: float
    schedule: tuple[ScheduledRate, ...]
    zone: dt.tzinfo

    @classmethod
    def from_message(cls, message: Bandwidth) -> Self:
        """What a message sets.

        Raises:
            ValueError: there is no such time zone, or a ramp of the schedule is longer than the
                time to the next change.
        """
        made = cls(
            constant=message.crawls_per_second,
            set_at=-math.inf if message.set_at is None else message.set_at,
            ramp_from=message.crawls_per_second if message.ramp_from is None else message.ramp_from,
            ramp_seconds=message.ramp_seconds,
            schedule=tuple(message.schedule),
            zone=zone_of(message.timezone),
        )
        shortest = _shortest_gap(made.schedule)
        if made.schedule and made.ramp_seconds > shortest:
            raise ValueError(
                f"a ramp of {made.ramp_seconds:g} s does not end before the schedule's next "
                f"change, {shortest:g} s later: make it shorter"
            )
        return made

    def at(self, time: float) -> Stretch:
        """How the budget goes on from a time (Unix seconds)."""
        if not self.schedule:
            return _stretch(self.ramp_from, self.constant, time - self.set_at, self.ramp_seconds)
        times, changes = _changes_around(self, self._day(time))
        last = max(bisect_right(times, time) - 1, 0)
        before, rate = changes[last]
        return _stretch(before, rate, time - times[last], self.ramp_seconds)

    def next_change(self, after: float) -> float:
        """When the schedule changes the rate next, or a ramp begins; infinite: never."""
        if not self.schedule:
            begins = self.set_at if self.ramp_seconds > 0 else math.inf
            return begins if begins > after else math.inf
        times, _ = _changes_around(self, self._day(after))
        following = bisect_right(times, after)
        return times[following] if following < len(times) else math.inf

    def _day(self, time: float) -> dt.date:
        return dt.datetime.fromtimestamp(min(max(time, 0.0), _LATEST), self.zone).date()


@lru_cache(maxsize=8)
def _changes_around(
    budget: Budget, day: dt.date
) -> tuple[tuple[float, ...], tuple[tuple[float, float], ...]]:
    """The schedule's changes of the days around a day, the earliest first: when each comes, and the
    rates before and after it.

    A schedule may have a change each minute, and is asked several times a second.
    """
    times, changes = list[float](), list[tuple[float, float]]()
    latest, rate, before = -math.inf, budget.schedule[-1].crawls_per_second, math.nan
    for days in _DAYS_AROUND:
        for step in budget.schedule:
            # Where clocks are set forward, hours that are left out fall on those after them; what
            # comes after such a step by the day still does. A ramp may not be over by then.
            at = max(latest, _moment(day + dt.timedelta(days=days), step.second, budget.zone))
            if changes:
                rate = _stretch(before, rate, at - latest, budget.ramp_seconds).rate
            before, rate, latest = rate, step.crawls_per_second, at
            times.append(at)
            changes.append((before, rate))
    return tuple(times), tuple(changes)


def zone_of(name: str) -> dt.tzinfo:
    """A time zone of the IANA database.

    Raises:
        ValueError: there is none of this name.
    """
    if name == UTC:
        return dt.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"there is no time zone {name!r}: use a name like Europe/Berlin"
        ) from error


def _moment(day: dt.date, second: int, zone: dt.tzinfo) -> float:
    hours, rest = divmod(second, 3600)
    local = dt.time(hours, rest // 60, rest % 60)
    return dt.datetime.combine(day, local, zone).timestamp()


def _stretch(before: float, rate: float, elapsed: float, ramp_seconds: float) -> Stretch:
    """A change from one rate to another that began some time ago."""
    if elapsed >= ramp_seconds or ramp_seconds <= 0 or before == rate:
        return Stretch(rate)
    if elapsed < 0:
        return Stretch(before)  # Who set it has a clock that is ahead.
    gone = elapsed / ramp_seconds
    return Stretch(before + gone * (rate - before), rate, ramp_seconds - elapsed)


def _shortest_gap(schedule: tuple[ScheduledRate, ...]) -> float:
    """Seconds between two changes of a day's schedule, at least."""
    seconds = [step.second for step in schedule]
    later = [*seconds[1:], seconds[0] + SECONDS_PER_DAY] if seconds else []
    return min((b - a for a, b in zip(seconds, later, strict=True)), default=math.inf)
