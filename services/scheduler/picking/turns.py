"""Whose turn a slot is, where reasons to crawl, or classes, have parts of the slots. Pure.

Start-time fair queueing (Goyal, Vin and Cheng 1996), but that no turn comes at an exact time: in
virtual time each sharer has a stretch of one over its share for each of its turns, and the turn is
due somewhere in its stretch. What is due first goes first, and virtual time is when the last turn
was due. Who has nothing to crawl is passed over, and the turn is gone: no slot is lost, and nothing
is saved. Who has pages all the time is never more than a turn off in virtual time, and of n sharers
one with the share s never more than 1 + n s slots.

Were turns kept that were passed over, one all of whose pages wait for the same host would have each
of its crawls: it has a turn left whenever the host is free, and is due before all others.

Were turns due at even distances, a host of which a crawl is free every so many slots could be free
before the turns of one and the same sharer for ever, and its other pages would never be crawled.
Where in its stretch a turn is due goes by multiples of an irrational number, another one for each
sharer: such a sequence is as even as can be, and falls in step with nothing (Weyl 1916).

Sharers of reasons are the queues (`priority.queue_of`), and `REST`: what is kept for nobody goes to
the most urgent of all.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board_rows import UPPER_TIERS
from shared.policy.compiled import compiled

REST: Final = UPPER_TIERS + 1
"""The sharer of what is kept for nobody."""

NOBODY_WAITS: Final = -1

_STRIDES: Final = np.sqrt(np.array([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0])) % 1.0
"""From where one turn of a sharer is due in its stretch to where the next one is; of eight at most:
all classes with shares, and everybody."""


@compiled
def due_at(share: float, tag: float, sharer: int) -> float:
    """When a turn is due, in virtual time.

    Args:
        share: of the slots.
        tag: when the stretch of this turn begins.
        sharer: by number.
    """
    passed = (1.0 + share * tag) * _STRIDES[sharer] % 1.0
    return float(tag + passed / share)


@compiled
def first_tag(share: float, tag: float, sharer: int, now: float) -> float:
    """When the stretch begins in which a sharer has its next turn from a virtual time on."""
    if due_at(share, tag, sharer) < now:
        tag += np.floor(max(now - tag, 0.0) * share) / share
        if due_at(share, tag, sharer) < now:
            tag += 1.0 / share
    return tag


@compiled
def next_turn(shares: NDArray[np.float64], tags: NDArray[np.float64], idle: int) -> int:
    """The sharer whose turn is next; `NOBODY_WAITS` where all that have a share are idle.

    Args:
        shares: of the slots, by sharer; 0: has no turns.
        tags: when the stretch of the next turn of each begins.
        idle: bits of those that have nothing to crawl.
    """
    best, first = NOBODY_WAITS, np.inf
    for sharer in range(shares.size):
        share = shares[sharer]
        if share <= 0.0 or (idle >> sharer) & 1:
            continue
        due = due_at(share, tags[sharer], sharer)
        if due < first:
            best, first = sharer, due
    return best


@compiled
def take_turn(shares: NDArray[np.float64], tags: NDArray[np.float64], sharer: int) -> float:
    """A sharer takes its turn, and all that were due before are passed over; the virtual time."""
    now = due_at(shares[sharer], tags[sharer], sharer)
    tags[sharer] += 1.0 / shares[sharer]
    for other in range(shares.size):
        if shares[other] > 0.0:
            tags[other] = first_tag(shares[other], tags[other], other, now)
    return float(now)


class Turns:
    """Sharers that take turns, and how far they are."""

    def __init__(self, shares: Sequence[float]) -> None:
        self._shares = np.array(shares)
        self.tags = np.zeros(self._shares.size)
        self.virtual_time = 0.0
        self.mark()

    def next(self, idle: int) -> int:
        """Who is next, but for those that have nothing to crawl, as bits."""
        return int(next_turn(self._shares, self.tags, idle))

    def take(self, sharer: int) -> None:
        """It takes the slot."""
        self.virtual_time = take_turn(self._shares, self.tags, sharer)

    def mark(self) -> None:
        """Turns that are taken from here on may be taken back."""
        self._marked = self.tags.copy(), self.virtual_time

    def retake(self, sharer: int, times: int) -> None:
        """Since the mark one sharer alone has taken turns, of which so many were of use: the others
        are as if they had not been."""
        self.tags[:], self.virtual_time = self._marked
        for _ in range(times):
            self.take(sharer)
