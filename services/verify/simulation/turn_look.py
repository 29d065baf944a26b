"""Whose turn a slot is, where parts of the slots are kept for reasons to crawl: once more, for the
look at every page. Queues are numbered as tiers are there: by value, over age, new, urgent."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from services.scheduler.picking.turns import due_at

_QUEUES: Final = (3, 2, 1, 0)

Turn = tuple[int | None, int]
"""Who takes it, None where nobody who has a part waits, and the queue that its page is of."""


class TurnLook:
    """Turns of a shard as they should be, from one call to the next."""

    def __init__(self, shares: Sequence[float]) -> None:
        rest = max(1.0 - sum(shares), 0.0)
        self._shares = {who: share for who, share in enumerate([*shares, rest]) if share > 0.0}
        self._next = dict.fromkeys(self._shares, 0.0)

    def follow(self, state: Any) -> None:
        """Go on from what the scheduler has in memory: what it has done is not certain."""
        self._next = {who: float(state["tags"][who]) for who in self._shares}

    def allowed(self, sure: Collection[int], maybe: Collection[int]) -> list[Turn]:
        """Turns that may be next, the first of them unless what it needs is a matter of rounding.

        Args:
            sure: queues that have a page that may be crawled now.
            maybe: queues that have one which may be, by rounding.
        """
        by_turn = sorted(self._shares, key=lambda who: (self._due(who), who))
        found: list[Turn] = []
        for who in [*by_turn, None]:
            for queue in (who,) if who in _QUEUES else _QUEUES:
                if queue in sure or queue in maybe:
                    found.append((who, queue))
                if queue in sure:
                    return found
        return found

    def take(self, turn: Turn) -> None:
        """A turn is taken."""
        who, _ = turn
        if who is not None:
            now = self._due(who)
            self._next[who] += 1.0 / self._shares[who]
            for other in self._shares:
                while self._due(other) < now:  # It had nothing to crawl, and its turn is gone.
                    self._next[other] += 1.0 / self._shares[other]

    def _due(self, who: int) -> float:
        return float(due_at(self._shares[who], self._next[who], who))


_ROUNDING: Final = 1e-6


class ClassLook:
    """What classes with shares are owed, from one slot to the next."""

    def __init__(self, shares: Sequence[float]) -> None:
        self._shares = shares
        self._owed = [0.0] * len(shares)
        # Slots that one which has pages all the time may be behind: see `turns`.
        self._most = [1.0 + share * (len(shares) + 1) + _ROUNDING for share in shares]

    def follow(self, begins: Sequence[float], now: float) -> None:
        """Go on from what the scheduler has in memory: what it has done is not certain.

        Args:
            begins: virtual time at which the stretch of each class's next turn begins.
            now: virtual time.
        """
        early = [max(begin - now, 0.0) for begin in begins]
        self._owed = [-share * ahead for share, ahead in zip(self._shares, early, strict=True)]

    def take(self, lane: int, waiting: Collection[int]) -> list[int]:
        """A slot is one of a class's own, or everybody's (0); the classes that were to have it.

        Args:
            lane: of the class, from 1 on.
            waiting: lanes of classes that have a page that may be crawled now.
        """
        late = []
        for place, share in enumerate(self._shares):
            if place + 1 == lane:
                self._owed[place] = max(self._owed[place] + share - 1.0, -self._most[place])
            elif place + 1 in waiting:
                self._owed[place] += share
                if self._owed[place] > self._most[place]:
                    late.append(place + 1)
            else:
                # Its turns are gone, and the next one may be due a stretch later. What it had
                # before its time it does not get again.
                self._owed[place] = min(self._owed[place] + share, -1.0)
        return late
