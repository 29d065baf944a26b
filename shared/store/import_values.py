"""What a row of an import may say of a page, whichever way it goes in: the same as messages."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.contracts.fields import MAX_DAYS, MAX_IMPORTANCE
from shared.store.page_status import NEVER

Floats = NDArray[np.float64]

AHEAD_SECONDS: Final = 300.0
"""A crawl of so much later than now may be one of now, by another machine's clock."""


def can_be_taken(
    importance: Floats, max_age_days: Floats, crawled_at: Floats, now: float
) -> NDArray[np.bool_]:
    """Which rows can be taken.

    A page that was crawled in times to come, as one whose time is in milliseconds, would wait for
    them, and every crawl until then would be old news.

    Args:
        importance: of each page.
        max_age_days: infinite: none of its own.
        crawled_at: Unix seconds; −inf: never.
        now: clock time, Unix seconds.
    """
    return np.asarray(
        ((importance >= 0) & (importance <= MAX_IMPORTANCE))
        & (((max_age_days > 0) & (max_age_days <= MAX_DAYS)) | (max_age_days == np.inf))
        & (((crawled_at >= 0) & (crawled_at <= now + AHEAD_SECONDS)) | (crawled_at == NEVER))
    )


def why_not(importance: float, max_age_days: float, crawled_at: float) -> str:
    """What is said of a row that cannot be taken."""
    return (
        f"importance {importance} must be from 0 to {MAX_IMPORTANCE:g}, max_age_days "
        f"{max_age_days} above 0 and {MAX_DAYS:g} at most, and crawled_at {crawled_at} a time in "
        "Unix seconds that is not to come"
    )
