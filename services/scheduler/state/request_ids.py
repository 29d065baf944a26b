"""What the id of a crawl request says: its page and its slot."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.scheduler.state.crawls import NO_REQUEST


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


def microseconds(unix_seconds: ArrayLike) -> NDArray[np.int64]:
    """Times as they stand in request ids; of one time a number."""
    return (np.asarray(unix_seconds) * 1e6 + 0.5).astype(np.int64)
