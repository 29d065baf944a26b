"""How soon a source is read again. Pure; this file alone knows."""

from typing import Final

from shared.policy.polls import PollRecord, poll_interval
from shared.units import SECONDS_PER_DAY

FIRST_SECONDS: Final = 3600.0
"""Of a source that nothing is known of."""

_FASTER, _SLOWER = 0.5, 2.0
MOST_DOUBLINGS: Final = 30

LONGEST_ASKED_SECONDS: Final = SECONDS_PER_DAY
"""Of a Retry-After so much counts, or the longest interval if that is more: a page that says that
the site is away may have any number."""


def next_interval(
    before: float, hint: float | None, *, found: bool, shortest: float, longest: float
) -> float:
    """Seconds until the next poll: half as many where something new was found, else twice as many.

    Args:
        before: what was waited for last, seconds; 0: this was the first poll.
        hint: what the source says of itself (`ttl`, `changefreq`), seconds; it is where the search
            begins, and what is found goes before it.
        found: whether there was something new.
        shortest: the result is not less, seconds.
        longest: nor more.
    """
    if before <= 0:
        seconds = FIRST_SECONDS if hint is None else hint
    else:
        seconds = before * (_FASTER if found else _SLOWER)
    return min(max(seconds, shortest), longest)


LEAST_DAYS: Final = 1.0
"""Watched for less, a source has no record to go by."""


def interval_by_value(
    record: PollRecord, price: float, *, shortest: float, longest: float
) -> float | None:
    """Seconds until a poll is worth its price. None: too little is known.

    Args:
        record: what the source's polls have brought.
        price: λ₀ times what a poll costs, in crawls; 0: it is not known.
        shortest: the result is not less, seconds.
        longest: nor more.
    """
    if not price > 0.0 or record.days < LEAST_DAYS:
        return None
    seconds = poll_interval(record.worth_a_day(price), price) * SECONDS_PER_DAY
    return min(max(seconds, shortest), longest)


def wait_after_failure(
    failures: int, asked: float | None, *, shortest: float, longest: float
) -> float:
    """Seconds until a source that failed is tried again: twice as many each time.

    Args:
        failures: in a row, this one included.
        asked: what its host asks for (Retry-After), seconds; None: nothing.
        shortest: after the first failure.
        longest: the result is not more, but where the host asks for more.
    """
    seconds = shortest * _SLOWER ** min(failures - 1, MOST_DOUBLINGS)
    return max(min(seconds, longest), min(asked or 0.0, longest_wait(longest)))


def pause_of_host(asked: float | None, *, shortest: float, longest: float) -> float:
    """Seconds for which none of a host's sources is read, as one of them was told to wait, or could
    not be reached. How often that one has failed says nothing of the others.

    Args:
        asked: what the host asks for (Retry-After), seconds; None: nothing.
        shortest: where it asks for nothing.
        longest: interval between two polls of a source.
    """
    return shortest if asked is None else min(asked, longest_wait(longest))


def longest_wait(longest: float) -> float:
    """The most that a source is put off for, whatever its host asks for, seconds.

    Args:
        longest: interval between two polls of a source.
    """
    return max(longest, LONGEST_ASKED_SECONDS)
