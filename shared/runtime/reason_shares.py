"""Parts of the budget that are kept for reasons to crawl, as operators say them.

`urgent`, `new` and `max-age` are the upper tiers, which go first, in this order, where nothing is
said; `value` is for all that goes by crawl value, `retry` included: what has failed again and again
competes with the rest by what it is worth, and so needs no part of its own.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator

SHARED_REASONS: Final = ("value", "max-age", "new", "urgent")
"""Those that parts can be kept for, in the order of the queues of a shard."""

_ROUNDING: Final = 1e-9


def checked_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares as they were given.

    Raises:
        ValueError: says what is wrong.
    """
    for reason, share in shares.items():
        if reason == "retry":
            raise ValueError(
                "retry has no share of its own: it goes by value, and has of `value`'s"
            )
        if reason not in SHARED_REASONS:
            raise ValueError(f"{reason} is none of {', '.join(SHARED_REASONS)}")
        if not (math.isfinite(share) and 0.0 <= share <= 1.0):
            raise ValueError(f"the share of {reason} is {share:g}, and must be between 0 and 1")
    if sum(shares.values()) > 1.0 + _ROUNDING:
        raise ValueError(f"the shares add up to {sum(shares.values()):g}, which is more than 1")
    return dict(shares)


ReasonShares = Annotated[dict[str, float], AfterValidator(checked_shares)]


def shares_by_queue(shares: Mapping[str, float]) -> tuple[float, ...]:
    """By queue of a shard; none where nothing is kept for anybody."""
    if not any(shares.values()):
        return ()
    return tuple(shares.get(reason, 0.0) for reason in SHARED_REASONS)
