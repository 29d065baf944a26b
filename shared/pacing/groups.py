"""The limit of a group of hosts, shared out between shards that do not talk: slots of its own.

A limit of R crawls a second is a sequence of slots, 1/R apart, each for one crawl at most, which is
made when it has come or soon after. As with the budget (`shared.pacing.slots`) each slot belongs to
the shard in whose interval of [0, 1) its point of the golden-ratio sequence lies; so all shards
together never crawl the group above R, whatever each of them does. Slots are numbered on through
every change of the limit or of the shares. The one that had begun then is nobody's: who had it
before may have used it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from shared.contracts.fields import MOST_GROUPS
from shared.contracts.messages import GroupShares
from shared.contracts.shares import DefaultShares, DividedGroup

ROOM_BYTES: Final = 800_000
"""For the shares of all groups, in a message that brokers take: less than a megabyte."""

SHARE_BYTES: Final = 40
"""Of one shard, with its names, at most."""

Groups = tuple[GroupShares, ...]
"""All groups that have a limit of their own."""


class Limits(NamedTuple):
    """The limits of groups that hold at a time."""

    groups: Groups = ()
    default: DefaultShares | None = None
    """Of all others that outcomes name."""

    def moved(self, seconds: float) -> "Limits":
        """The same slots at other times: the clock was set by so much."""
        default = self.default
        if default is not None:
            default = replace(default, since=max(default.since + seconds, 0.0))
        return Limits(_moved(self.groups, seconds), default)


NO_LIMITS: Final = Limits()


def most_groups(shards: int) -> int:
    """Groups that can have limits where there are so many shards, each of which may have a part of
    every limit."""
    return max(min(MOST_GROUPS, ROOM_BYTES // (SHARE_BYTES * max(shards, 1))), 1)


def passed(shares: GroupShares | DefaultShares, time: float) -> float:
    """How many slots of a group have passed at a time from `since` on, with a fraction."""
    return shares.first_slot + shares.crawls_per_second * max(time - shares.since, 0.0)


def interval_of(shares: GroupShares, shard: int) -> tuple[float, float]:
    """Where the points of a shard's slots lie, [low, high); (0, 0): it has none."""
    # Rounding must not let two shards have one slot: the bounds are sums in one and the same order.
    low = 0.0
    total = max(sum(allotment.share for allotment in shares.allotments), 1.0)
    for allotment in shares.allotments:
        high = low + allotment.share / total
        if allotment.shard == shard:
            return low, high
        low = high
    return 0.0, 0.0


def have_same_slots(one: DefaultShares | None, other: DefaultShares | None) -> bool:
    """Whether all shards have the same slots under both: only which groups are told of differs."""
    if one is None or other is None:
        return one is other
    return replace(one, divided=[]) == replace(other, divided=[])


def even_interval(default: DefaultShares, shard: int) -> tuple[float, float]:
    """As `interval_of`, of a group that is not divided."""
    if shard >= default.shards:
        return 0.0, 0.0
    return shard / default.shards, (shard + 1) / default.shards


def divided_interval(of: DividedGroup, shard: int) -> tuple[float, float]:
    """As `interval_of`, of a divided group that some shards have."""
    low, total = 0.0, max(sum(of.shares), 1.0)
    for number, share in zip(of.shards, of.shares, strict=False):
        high = low + share / total
        if number == shard:
            return low, high
        low = high
    return 0.0, 0.0


def _moved(groups: Iterable[GroupShares], seconds: float) -> Groups:
    return tuple(replace(g, since=max(g.since + seconds, 0.0)) for g in groups)
