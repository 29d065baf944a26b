"""What the id of a crawl request says: its page and its slot."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shared.units import SECONDS_PER_DAY

NO_REQUEST: Final = -1

MOST_BEHIND_SECONDS: Final = SECONDS_PER_DAY
"""That a crawler's clock may be: with a wrong time zone it is by half of that."""


def request_id_of(shard: int, page_id: int, requested_us: int) -> str:
    """The id of a request: its page and its slot, so never the same twice."""
    return "%x-%x-%x" % (shard, page_id, requested_us)  # noqa: UP031 - half as dear as an f-string


def requested_us_of(request_id: str | None) -> int:
    """Out of a request's id, when it was made (Unix microseconds); NO_REQUEST for other ids."""
    if request_id is None:
        return NO_REQUEST
    parts = request_id.split("-")
    try:
        return int(parts[2], 16) if len(parts) == 3 and len(parts[2]) <= 15 else NO_REQUEST
    except ValueError:
        return NO_REQUEST


def requested_at_of(request_id: str | None) -> float | None:
    """Out of a request's id, when it was made (Unix seconds); None: other ids do not say."""
    requested_us = requested_us_of(request_id)
    return None if requested_us == NO_REQUEST else requested_us / 1e6


def crawl_time(crawled_at: float, request_id: str) -> float:
    """When a crawl was that answers a request: when its crawler says, and not before it was asked
    for. The clocks of crawlers are often behind, or count whole seconds.

    Args:
        crawled_at: as the crawler says, Unix seconds.
        request_id: of the request. One that tells of a much later time is none of ours.
    """
    asked_at = requested_us_of(request_id) / 1e6  # NO_REQUEST is before every crawl
    return asked_at if crawled_at < asked_at <= crawled_at + MOST_BEHIND_SECONDS else crawled_at


def microseconds(unix_seconds: ArrayLike) -> NDArray[np.int64]:
    """Times as they stand in request ids; of one time a number."""
    return (np.asarray(unix_seconds) * 1e6 + 0.5).astype(np.int64)
