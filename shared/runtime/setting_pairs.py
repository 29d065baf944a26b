"""Settings that cannot work beside each other, each of which could alone."""

from typing import TYPE_CHECKING, Final

from shared.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from shared.runtime.settings import Settings

TURNS_PER_STALL: Final = 4.0
"""A loop rests for up to so many of its turns under load (`shared.runtime.slices.MOST_LINGERS`)."""

REPORTS_PER_SILENCE: Final = 2.0
"""Reports that come a little late each must not make their shard silent in between."""


def check_pairs(settings: "Settings") -> None:
    """Refuse settings that contradict each other.

    Raises:
        ValueError: names them, their values, and what to do.
    """
    for check in (_reports, _turns, _polls, _ages, _clock):
        check(settings)


def _reports(settings: "Settings") -> None:
    report, silent = settings.report_seconds, settings.silent_after_seconds
    if silent < REPORTS_PER_SILENCE * report:
        raise ValueError(
            f"silent_after_seconds is {silent:g} and report_seconds {report:g}, so shards would "
            "lose their budget between two of their reports: give silent_after_seconds at least "
            "twice report_seconds, and both to schedulers and coordinators alike"
        )


def _turns(settings: "Settings") -> None:
    for name in ("tick_seconds", "batch_linger_seconds"):
        turn = getattr(settings, name)
        if settings.stall_seconds <= TURNS_PER_STALL * turn:
            raise ValueError(
                f"stall_seconds is {settings.stall_seconds:g} and {name} {turn:g}, so workers "
                f"would end themselves while they rest: give stall_seconds more than "
                f"{TURNS_PER_STALL:g} times {name}"
            )


def _polls(settings: "Settings") -> None:
    shortest, longest = settings.poller_shortest_seconds, settings.poller_longest_seconds
    if longest < shortest:
        raise ValueError(
            f"poller_longest_seconds is {longest:g}, which is less than poller_shortest_seconds "
            f"({shortest:g}): no sitemap or feed can be read as often as the one and as seldom as "
            "the other says"
        )


def _ages(settings: "Settings") -> None:
    days, least = settings.default_max_age_days, settings.least_interval_seconds
    if days is not None and days * SECONDS_PER_DAY < least:
        raise ValueError(
            f"default_max_age_days is {days:g}, which is {days * SECONDS_PER_DAY:g} s, and no page "
            f"is crawled again within least_interval_seconds ({least:g}): it would never be kept"
        )


def _clock(settings: "Settings") -> None:
    given = {"clock_origin", "clock_speed"} & settings.model_fields_set
    if given and settings.clock_gate is None:
        raise ValueError(
            f"{' and '.join(sorted(given))} would be of no use without clock_gate, which starts "
            "the simulated time: leave it out for the real time"
        )
