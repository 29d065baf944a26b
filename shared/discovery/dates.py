"""What dates are worth that others write. Pure.

- A date that lies more than a day in the future says nothing: years to come, mixed-up days and
  months. One that lies less far ahead, as where a time zone is mistaken, counts as now.
- A date without a time means that the page changed at some time of that day; the last moment of it
  that has passed counts, so that no change is taken for one that a crawl has seen.
- Anything else is taken at its word. Whether a source tells the truth is learned from what crawls
  find, as of any other.
"""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from shared.units import SECONDS_PER_DAY

MOST_AHEAD_SECONDS: Final = SECONDS_PER_DAY
_WHOLE_DAY: Final = re.compile(
    r"([0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4}|-?W[0-9]{2}-?[0-9]))(Z|[+-][0-9]{2}:[0-9]{2})?"
)
"""A date, and its time zone: the schema of sitemaps has such dates (`xsd:date`)."""

_LAST: Final = 2.0**32 - 1
"""Year 2106; times are kept in 32 bits."""


class Stated(NamedTuple):
    """A time as somebody wrote it."""

    at: float
    """Unix seconds; of a whole day, its beginning, by UTC unless another zone is said."""
    whole_day: bool


def read_date(written: str) -> Stated | None:
    """A date as sitemaps (W3C), Atom (RFC 3339) or RSS (RFC 2822) write it; None: it is none."""
    text = written.strip()
    if text.endswith("z"):  # RFC 3339 has it, Python's reader has not
        text = text[:-1] + "Z"
    day = _WHOLE_DAY.fullmatch(text)
    if day is not None and day[2]:
        text = f"{day[1]}T00:00{day[2]}"
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = read(text)
            seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
        return Stated(seconds, day is not None) if seconds > 0 else None
    return None


def seconds_until(written: str, now: float) -> float | None:
    """Seconds of a Retry-After, which says how many or when (RFC 9110 10.2.3); None: neither.

    Args:
        written: by the server; however many digits it has.
        now: Unix seconds.
    """
    text = written.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:20])
    at = read_date(text)
    return None if at is None else max(at.at - now, 0.0)


def believable(stated: Stated | None, now: float) -> Stated | None:
    """The time, unless it lies too far in the future. `now` is Unix seconds."""
    if stated is None or stated.at > min(now + MOST_AHEAD_SECONDS, _LAST):
        return None
    return stated


def observed_at(stated: Stated, now: float) -> float:
    """Unix seconds that the page's signal carries, never later than `now`."""
    return min(stated.at + (SECONDS_PER_DAY if stated.whole_day else 0.0), now)
