"""Servers that ask to be left alone for a while: 429, 503 and Retry-After, RFC 9110 10.2.3."""

from typing import Final

from shared.discovery.dates import seconds_until
from shared.runtime.acceptance import BUSY_STATUSES
from shared.runtime.fetching import Fetched, FetchFailed

_MOST_DIGITS: Final = 9
"""Of seconds; more is no time that anybody means."""


class Busy(FetchFailed):
    """The host asks for a pause."""

    def __init__(self, reason: str, seconds: float | None) -> None:
        super().__init__(reason)
        self.seconds = seconds
        """How long; None: it does not say."""


def require_not_busy(answer: Fetched, now: float, who: str) -> None:
    """Go on where an answer asks for no pause.

    Args:
        answer: of a server.
        now: Unix seconds.
        who: answers, for the reason.

    Raises:
        Busy: it does.
    """
    if answer.status in BUSY_STATUSES:
        asked = _seconds_until(answer.headers.get("Retry-After", ""), now)
        raise Busy(f"{who} answers {answer.status}", asked)


def _seconds_until(written: str, now: float) -> float | None:
    text = written.strip()
    is_no_time = text.isdecimal() and len(text) > _MOST_DIGITS
    return None if is_no_time else seconds_until(text, now)
