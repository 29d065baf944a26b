"""What faults have in common: what each says of itself, for how long, and how a link fails."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from services.verify.network import Direction, Link
from services.verify.plan import SESSION_TIMEOUT_SECONDS

DOWN_SECONDS: Final = (0.3, 4.0)
"""How long a server is away before it is started again."""

PAUSE_SECONDS: Final = (1.0, 1.7 * SESSION_TIMEOUT_SECONDS)

WAYS: Final = ("cut off", "stalled", "unheard", "deaf", "slow")
"""What a network does: ends connections, holds up everything, holds up what is said or what is
answered, or takes its time and loses some of it."""

SLOW_SECONDS: Final = 0.15
LOST_SHARE: Final = 0.05


class Harm(NamedTuple):
    """What a fault did."""

    what: str
    """Whom it hit, and how."""
    hit: frozenset[str]
    """What was down for it."""
    ended: float | None = None
    """Unix seconds at which nothing was down any more; None: now."""
    forgotten: int = 0
    """Records whose effects PostgreSQL had committed, and lost."""


@contextmanager
def harmed(links: Sequence[Link], way: str) -> Iterator[None]:
    """Do what one of `WAYS` says to links, and restore them at the end."""
    for link in links:
        _harm(link, way)
    try:
        yield
    finally:
        for link in links:
            link.restore()


def _harm(link: Link, way: str) -> None:
    if way == "cut off":
        link.cut()
    elif way == "slow":
        link.slow(SLOW_SECONDS, LOST_SHARE)
    else:
        direction: Mapping[str, Direction] = {"unheard": "there", "deaf": "back"}
        link.stall(direction.get(way, "both"))
