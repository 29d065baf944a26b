"""Groups of hosts by the rules, in plain Python: see `reference_shard`."""

import math
from dataclasses import dataclass, field

import numpy as np
from reference_pages import NEVER

from services.scheduler.state.groups import TURNS
from shared.contracts.messages import Allotment, GroupShares
from shared.contracts.shares import DefaultShares, DividedGroup
from shared.pacing.groups import passed
from shared.pacing.slots import slot_positions


def shares_of(name, rate, parts, since, first_slot=0.0):
    """A limit, and the parts of it by shard."""
    allotments = [Allotment(shard, part) for shard, part in parts.items()]
    return GroupShares(name, rate, since, first_slot, allotments)


def followed_by(before, at, rate, parts):
    """Other shares of the same group, from a time on."""
    return shares_of(before.group, rate, parts, at, passed(before, at))


def default_of(rate, shards, since, divided=(), first_slot=0.0):
    """A limit of all groups that outcomes name; `divided` is group, and parts by shard."""
    parts = [DividedGroup(name, list(of), list(of.values())) for name, of in divided]
    return DefaultShares(rate, since, first_slot, shards, parts)


def default_shares_of(name, default):
    """The same as the limit of one of them."""
    parts = dict.fromkeys(range(default.shards), 1 / default.shards)
    for of in default.divided:
        if of.group == name and of.shards:
            parts = dict(zip(of.shards, of.shares, strict=True))
    return shares_of(name, default.crawls_per_second, parts, default.since, default.first_slot)


def owner_of(shares, number):
    """The shard that a slot belongs to; None: nobody's."""
    if number <= math.floor(shares.first_slot):
        return None
    place = float(slot_positions(np.array([number]))[0])
    upper = 0.0
    for allotment in shares.allotments:
        upper += allotment.share
        if place < upper:
            return allotment.shard
    return None


@dataclass
class ReferenceGroup:
    """A group as one shard has it."""

    shares: GroupShares
    shard: int = 0
    used: set = field(default_factory=set)
    closed: float = NEVER
    """Slots that have come by then may be used already."""
    kept: float = math.inf
    over: float = NEVER
    """Slots that had come by then were over when slots began to be kept for longer."""

    def keep(self, now, slots_per_second):
        """The shard has another part of the budget."""
        rate = self.shares.crawls_per_second
        kept = max(1.0 / rate, TURNS / slots_per_second) if rate > 0.0 else math.inf
        if kept > self.kept:
            self.over = max(self.over, now - self.kept)
        self.kept = kept

    def usable_slot(self, now):
        """The last slot of the shard that has come and is kept, unless it is used; None."""
        rate, shares = self.shares.crawls_per_second, self.shares
        if rate <= 0.0 or now <= shares.since:
            return None
        oldest = shares.first_slot
        for begin in (now - self.kept, self.over, self.closed):
            if begin > shares.since:
                oldest = max(oldest, passed(shares, begin))
        for number in range(math.floor(passed(shares, now)), math.floor(oldest), -1):
            if number <= max(self.used, default=-1):
                return None
            if owner_of(shares, number) == self.shard:
                return number
        return None

    def crawl(self, now):
        self.used.add(self.usable_slot(now))

    def close(self, time):
        """A host that was crawled by then is of the group now: maybe in one of its slots."""
        if time > self.shares.since:
            self.closed = max(self.closed, time)

    def follow(self, shares):
        if shares != self.shares:
            self.shares, self.used = shares, set()
            self.kept, self.over = math.inf, NEVER
