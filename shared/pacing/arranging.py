"""In which order the shards' shares lie, so that each soon has the slots that its shares came to.

A share that lies where it is has its slots as evenly as can be (`slots`). But shares change each
second, and with them where all that come after lie: a share that is small, so that it gives a slot
in five seconds, gets slots by chance then, and none for a minute now and then. So what each shard
was allotted is compared with what fell to it, and the next plan's shares lie in an order by which
its first slots make up for what is owed. Whose slots they are is still said by the plan alone.

In a recorded run of 64 shards at 70 crawls/s whose shares changed by 5 to 15 % a second, up to 12.6
slots were owed to a shard where shares lay by number (5.5 to the one that was owed most, on
average), and 2.0 (0.8) in this order.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.pacing.slots import SlotTimeline, slot_positions

Floats = NDArray[np.float64]

AHEAD_SECONDS: Final = 1.0
"""A plan holds for so long (wall), about, until shares change again."""

MOST_ARRANGED: Final = 256
"""Shares that are put in their places; those of other shards, to which less is owed, follow."""

MOST_SLOTS: Final = 4096
"""That are looked at; where there are more in a second, chance means little."""

MOST_OWED: Final = 8.0
"""Slots, either way: what was missed for long, as after a change of leaders, is not made up for."""


class Owed:
    """Slots that shards were allotted, and that have not fallen to them."""

    def __init__(self) -> None:
        """Nothing is owed."""
        self._settled_at = -np.inf
        """Clock seconds; no plan that is still to come takes slots from before."""
        self._settled: dict[int, float] = {}

    def at(self, timeline: SlotTimeline, time: float) -> dict[int, float]:
        """Slots that are owed to shards; one had too many where they are less than none.

        Args:
            timeline: what was said so far; plans that it has forgotten since the last call do not
                count.
            time: clock seconds, from the newest plan's moment on: as if it held until then.
        """
        newest = timeline.newest
        if newest is None:
            return {}
        if newest.effective_at > self._settled_at:
            self._settled = _grown(self._settled, timeline, self._settled_at, newest.effective_at)
            self._settled_at = newest.effective_at
        return _grown(self._settled, timeline, self._settled_at, time)

    def shift(self, seconds: float) -> None:
        """The clock was set by so much."""
        self._settled_at += seconds

    def arranged(
        self, timeline: SlotTimeline, shares: Mapping[int, float], time: float, slots: float
    ) -> list[int]:
        """The shards in the order in which their shares are to lie.

        Those that no share was said of any more are forgotten.

        Args:
            timeline: what was said so far.
            shares: of shards, together at most 1, but for rounding.
            time: clock seconds from which they hold.
            slots: how many they hold for, about.
        """
        self._settled = {shard: owed for shard, owed in self._settled.items() if shard in shares}
        debts = self.at(timeline, time)
        owed = {shard: debts.get(shard, 0.0) for shard in sorted(shares) if shares[shard] > 0}
        nothing = [shard for shard in sorted(shares) if shard not in owed]
        by_debt = sorted(owed, key=owed.__getitem__, reverse=True)
        chosen, others = sorted(by_debt[:MOST_ARRANGED]), sorted(by_debt[MOST_ARRANGED:])
        order = _order(
            np.array([shares[shard] for shard in chosen]) / max(sum(shares.values()), 1.0),
            np.array([owed[shard] for shard in chosen]),
            _next_points(timeline.passed(time), slots),
        )
        return [chosen[place] for place in order] + others + nothing


def _grown(
    debts: Mapping[int, float], timeline: SlotTimeline, after: float, until: float
) -> dict[int, float]:
    """Debts, with what is allotted and what falls to shards in (after, until]."""
    grown = dict(debts)
    for begin, end, plan in timeline.held(after, until):
        passed = plan.passed(end) - plan.passed(begin)
        _, owners = plan.between(begin, end)
        if owners.size < passed - 1.0:  # There were more than are ever given.
            grown = {}
            continue
        found, counts = np.unique(owners, return_counts=True)
        fell = dict(zip(found.tolist(), counts.tolist(), strict=True))
        allotted = passed * np.diff(plan.bounds, prepend=0.0)
        for shard, slots in zip(plan.shards.tolist(), allotted.tolist(), strict=True):
            owed = grown.get(shard, 0.0) + slots - fell.get(shard, 0)
            grown[shard] = min(max(owed, -MOST_OWED), MOST_OWED)
    return grown


def _next_points(first_slot: float, slots: float) -> Floats:
    # Where a plan holds for less than a slot, one of the next has it: nobody knows which.
    count = int(min(max(slots, 1.0), MOST_SLOTS))
    first = int(np.floor(first_slot)) + 1
    return np.sort(slot_positions(np.arange(first, first + count, dtype=np.int64)))


def _order(widths: Floats, owed: Floats, points: Floats) -> list[int]:
    """Intervals of [0, 1), from its beginning on: next comes the one to which it matters most that
    so many points lie there, over what it would have anywhere.

    Args:
        widths: of the intervals.
        owed: points of each, beside those that come by its width.
        points: rising.
    """
    expected = widths * points.size
    wanted = owed + expected
    left, order, at = np.arange(widths.size), list[int](), 0.0
    while left.size:
        ends = np.searchsorted(points, at + widths[left])
        found = ends - np.searchsorted(points, at)
        missed = (wanted[left] - found) ** 2 - (wanted[left] - expected[left]) ** 2
        place = int(missed.argmin())
        order.append(int(left[place]))
        at += float(widths[left[place]])
        left = np.delete(left, place)
    return order
