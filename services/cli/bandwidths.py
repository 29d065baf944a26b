"""Bandwidth as people write and read it: rates, schedules of a day, and why it changed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shared.units import SECONDS_PER_DAY
from shared.views.host_reasons import moment

MOST_PER_SECOND: Final = 1e6
"""What the contract takes at most (`MAX_CRAWL_RATE`)."""

MOST_STEPS: Final = 1440
"""Of a day's schedule, as the contract has it: one each minute."""

MOST_TIMES: Final = 10.0
"""The budget that stands, a number without a unit may be at most."""

_TIME = re.compile(r"^(\d{1,2}):(\d{2})(?::(\d{2}))?$")


class BadBandwidth(ValueError):
    """What was written is no rate or no schedule; the text says why."""


def read_rate(text: str) -> float:
    """Crawls per second: of `100/s`, `100` or `8640000/day`.

    Raises:
        BadBandwidth: it is none of these, or too much.
    """
    number, _, unit = text.partition("/")
    try:
        rate = float(number) / {"": 1.0, "s": 1.0, "day": SECONDS_PER_DAY}[unit.strip()]
    except (ValueError, KeyError):
        raise BadBandwidth(f"{text!r} is not a rate like 100/s or 5000/day") from None
    if not 0 <= rate <= MOST_PER_SECOND:
        raise BadBandwidth(f"{text!r} is not between 0 and {MOST_PER_SECOND:g} crawls per second")
    return rate


def has_unit(text: str) -> bool:
    """Whether a rate, as `read_rate` takes it, says per what it is."""
    return "/" in text


def require_meant(rate: float, text: str, standing: float) -> None:
    """Refuse a number without a unit that is far above what stands: it may be meant a day.

    Args:
        rate: crawls per second, of `text`.
        text: as it was written.
        standing: the budget, crawls per second; 0: nothing to compare it with.

    Raises:
        BadBandwidth: it is; says how it is set if it is meant.
    """
    if 0 < standing * MOST_TIMES < rate:
        number = text.strip()
        raise BadBandwidth(
            f"{number} without a unit is crawls per second, {rate / standing:.3g} times the budget "
            f"that stands ({standing:.6g}/s): write {number}/s if it is meant, or {number}/day"
        )


def read_schedule(given: str) -> list[tuple[int, float]]:
    """A day's schedule: `00:00=2/s 06:00=10/s`, or the path of a file with such entries.

    In a file entries may stand on lines of their own, and what follows a # is left out.

    Returns:
        second of the day and crawls per second, the earliest first.

    Raises:
        BadBandwidth: says which entry is wrong.
    """
    text = given
    if "=" not in given:
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise BadBandwidth(
                f"{given!r} is neither a schedule like 00:00=2/s nor a file: {error}"
            ) from error
    entries = " ".join(line.partition("#")[0] for line in text.splitlines()).split()
    if not entries:
        raise BadBandwidth("the schedule is empty: write entries like 06:00=10/s")
    if len(entries) > MOST_STEPS:
        raise BadBandwidth(f"the schedule has {len(entries)} entries: give {MOST_STEPS} at most")
    steps = [_entry(entry) for entry in entries]
    seconds = [second for second, _ in steps]
    twice = next((second for second in seconds if seconds.count(second) > 1), None)
    if twice is not None:
        raise BadBandwidth(f"{time_of_day(twice)} is in the schedule twice")
    return sorted(steps)


def _entry(entry: str) -> tuple[int, float]:
    time, separator, rate = entry.partition("=")
    match = _TIME.match(time)
    if not separator or match is None:
        raise BadBandwidth(f"{entry!r} is not an entry like 06:00=10/s")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if hours > 23 or minutes > 59 or seconds > 59:
        raise BadBandwidth(f"{entry!r}: {time} is no time of the day")
    return hours * 3600 + minutes * 60 + seconds, read_rate(rate)


def time_of_day(second: int) -> str:
    """06:00, or 06:00:30 where there are seconds."""
    hours, rest = divmod(second, 3600)
    text = f"{hours:02}:{rest // 60:02}"
    return f"{text}:{rest % 60:02}" if rest % 60 else text


def when(time: float | None) -> str | None:
    """A time of the clock for people; None stays."""
    return None if time is None else moment(time)


def timed(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer for people: its times, whose names end so, as they read them."""
    return {
        name: when(value)
        if name.endswith(("_at", "_until")) and isinstance(value, int | float)
        else value
        for name, value in answer.items()
    }


def history_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decisions as a table: the newest last, as people read."""
    return [
        {
            "at": when(row["effective_at"]),
            "version": row["version"],
            "leader": f"{row['leader'] or '-'} ({row['epoch']})",
            "cause": row["cause"],
            "crawls_per_second": _rate(row),
            "λ₀": row["multiplier"],
            "achieved": row["achieved_crawls_per_second"],
            "shards": row["live_shards"],
            "why": row["why"],
        }
        for row in reversed(rows)
    ]


def _rate(row: dict[str, Any]) -> str:
    rate = f"{row['crawls_per_second']:.6g}"
    return rate if row["ramp_to"] is None else f"{rate}→{row['ramp_to']:.6g}"
