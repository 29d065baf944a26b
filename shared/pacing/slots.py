"""One sequence of slots for the whole system, shared out without a word between the shards.

The budget R is a sequence of slots at times 1/R apart, numbered from the beginning of the world
and on through every change of R. Slot k belongs to the shard in whose interval of [0, 1) the
k-th point of the golden-ratio sequence lies; the intervals are the shards' shares. So every
shard knows its own slots from the last `multipliers` message alone, any window of any length
holds R·length slots to within one *in total*, whatever the number of shards, and each shard's
own slots are as evenly spread as a sequence can be (the three-distance theorem), as long as its
interval lies where it is; where shares change, `arranging` makes up for what that does. In a ramp
the rate itself changes evenly, and slot k is where the integral of the rate reaches k: the budget
is exact there too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.contracts.messages import Allotment, Multipliers
from shared.pacing.budget import Stretch
from shared.pacing.groups import NO_LIMITS, Limits

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: multiples of it, modulo 2^64, are the sequence, exactly."""

_TWO_64 = 2.0**64

MOST_SLOTS_AT_ONCE = 1_000_000
"""Of a longer stretch only the last slots are given: nobody could fill them all in one go."""

SHORTEST_RAMP_SECONDS = 1e-6
"""A shorter one would have a slope beyond all numbers; the rate at its end holds at once."""

KNOWN_AHEAD_SECONDS: Final = 0.25
"""So long (wall) before a plan takes effect the broker must have it: who knows all that the broker
had at some moment may fill the slots until so long after it."""

SHOWN_WITHIN_SECONDS: Final = 0.1
"""A broker shows a record to all who ask so long (wall) after it stamped it, at most: it may stand
still in between."""

NOBODY = np.int32(-1)
"""Owner of a slot that no share covers."""


def slot_positions(slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """The slots' points in [0, 1)."""
    return np.asarray(slots.astype(np.uint64) * _GOLDEN / _TWO_64, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Which slots there are from a moment on, and whose they are."""

    version: int
    effective_at: float
    """Clock seconds; the plan holds from here on."""
    slots_per_second: float
    """R at `effective_at`."""
    first_slot: float
    """Slots that have passed at `effective_at`, with a fraction."""
    shards: NDArray[np.int32]
    bounds: NDArray[np.float64]
    """Rising upper ends of the shards' intervals."""
    multiplier: float
    """λ₀."""
    epoch: int = 0
    """Of the coordinator's leadership; within one, versions rise."""
    ramp_to: float | None = None
    """R at the end of the ramp and from then on; None: there is no ramp."""
    ramp_seconds: float = 0.0
    limits: Limits = NO_LIMITS
    """Of groups of hosts."""
    _shares: dict[int, float] = field(init=False, repr=False, compare=False)
    """By shard: it is asked for at each tick, of each."""

    def __post_init__(self) -> None:
        shares = np.diff(self.bounds, prepend=0.0)
        by_shard = dict(zip(self.shards.tolist(), shares.tolist(), strict=True))
        object.__setattr__(self, "_shares", by_shard)

    @classmethod
    def from_message(cls, message: Multipliers) -> Self:
        """The plan that a `multipliers` message makes."""
        allotments = [a for a in message.allotments if a.share > 0]
        bounds = np.cumsum([a.share for a in allotments], dtype=np.float64)
        if bounds.size and bounds[-1] > 0:
            # Shares that add up to one but for rounding leave no slot without an owner.
            bounds = bounds / max(bounds[-1], 1.0)
            if bounds[-1] > 1 - 1e-9:
                bounds[-1] = 1.0
        is_ramp = message.ramp_to is not None and message.ramp_seconds >= SHORTEST_RAMP_SECONDS
        return cls(
            version=message.version,
            effective_at=message.effective_at,
            slots_per_second=_first_rate(message, is_ramp=is_ramp),
            first_slot=message.first_slot,
            shards=np.array([a.shard for a in allotments], dtype=np.int32),
            bounds=bounds,
            multiplier=message.multiplier,
            epoch=message.epoch,
            ramp_to=message.ramp_to if is_ramp else None,
            ramp_seconds=message.ramp_seconds if is_ramp else 0.0,
            limits=Limits(tuple(message.groups), message.default_groups),
        )

    @property
    def order(self) -> tuple[int, int]:
        """Of two plans the one with the higher order stands."""
        return self.epoch, self.version

    def moved(self, seconds: float) -> Self:
        """The same slots at other times: the clock was set by so much."""
        at = self.effective_at + seconds
        return replace(self, effective_at=at, limits=self.limits.moved(seconds))

    def rate_at(self, time: float) -> float:
        """R at a time of the plan."""
        if self.ramp_to is None:
            return self.slots_per_second
        part = min(max((time - self.effective_at) / self.ramp_seconds, 0.0), 1.0)
        return self.slots_per_second + part * (self.ramp_to - self.slots_per_second)

    def stretch(self, time: float) -> Stretch:
        """How the budget goes on from a time of the plan."""
        left = self.effective_at + self.ramp_seconds - time
        if self.ramp_to is None or left <= 0:
            return Stretch(self.rate_at(time))
        return Stretch(self.rate_at(time), self.ramp_to, min(left, self.ramp_seconds))

    def share_of(self, shard: int) -> float:
        """A shard's part of the slots."""
        return self._shares.get(shard, 0.0)

    def passed(self, time: float) -> float:
        """How many slots have passed at a time, with a fraction."""
        elapsed = time - self.effective_at
        if self.ramp_to is None or elapsed <= 0:
            return self.first_slot + self.slots_per_second * elapsed
        in_ramp = min(elapsed, self.ramp_seconds)
        slope = (self.ramp_to - self.slots_per_second) / self.ramp_seconds
        ramped = self.slots_per_second * in_ramp + 0.5 * slope * in_ramp**2
        return self.first_slot + ramped + self.ramp_to * (elapsed - in_ramp)

    def _times_of(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """When slots come: the inverse of `passed`."""
        ahead = numbers - self.first_slot
        start, end = self.slots_per_second, self.ramp_to
        if end is None:
            return np.asarray(self.effective_at + ahead / start)
        ramped = 0.5 * (start + end) * self.ramp_seconds
        slope = (end - start) / self.ramp_seconds
        # This form of the quadratic's root loses nothing where the slope is small.
        inside = np.clip(ahead, 0.0, ramped)
        root = np.sqrt(np.maximum(start**2 + 2.0 * slope * inside, 0.0))
        elapsed = np.divide(
            2.0 * inside, start + root, out=np.zeros(len(ahead)), where=start + root > 0
        )
        if end > 0:
            elapsed += np.maximum(ahead - ramped, 0.0) / end
        return np.asarray(self.effective_at + elapsed)

    def between(self, after: float, until: float) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """The slots in (after, until] under this plan alone.

        Returns:
            their times, rising, and their owners.
        """
        start = max(after, self.effective_at)
        if until <= start:
            return np.empty(0), np.empty(0, np.int32)
        first = int(np.floor(self.passed(start))) + 1
        end = int(np.floor(self.passed(until))) + 1
        if end <= first:
            return np.empty(0), np.empty(0, np.int32)
        numbers = np.arange(max(first, end - MOST_SLOTS_AT_ONCE), end, dtype=np.int64)
        times = self._times_of(numbers)
        owners = np.full(numbers.size, NOBODY, np.int32)
        index = np.searchsorted(self.bounds, slot_positions(numbers), side="right")
        owned = index < self.shards.size
        owners[owned] = self.shards[index[owned]]
        return np.clip(times, start, until), owners


def _first_rate(message: Multipliers, *, is_ramp: bool) -> float:
    has_end = message.ramp_to is not None and message.ramp_seconds > 0
    if has_end and not is_ramp and message.ramp_to is not None:
        return message.ramp_to
    return message.crawls_per_second


def is_late(message: Multipliers, appended_at: float | None) -> bool:
    """Whether a message came too late to count.

    Args:
        message: as it stands on the topic.
        appended_at: the broker's time of it, Unix seconds; None: the topic has other times, so that
            nobody can know.
    """
    return (
        appended_at is not None
        and message.append_by is not None
        and appended_at > message.append_by
    )


class SlotTimeline:
    """The plans that hold one after the other; old ones are forgotten as time passes."""

    def __init__(self, plans: Iterable[SlotPlan] = ()) -> None:
        self.last_version = 0
        """The highest of all plans that came, those that were left out too."""
        self.epoch = 0
        """The highest, likewise: what leaders of before say from then on, they say too late."""
        self._plans: list[SlotPlan] = []
        for plan in plans:
            self.add(plan)

    def add(self, plan: SlotPlan) -> None:
        """Take a newer plan: from its moment on it replaces all others.

        Older ones are left out: of an earlier version, or of a leader that has been replaced, which
        may not know it yet.
        """
        is_replaced = self.is_replaced(plan)
        self.leave_out(plan)
        if is_replaced or (self._plans and plan.order <= self._plans[-1].order):
            return
        self._plans = [p for p in self._plans if p.effective_at < plan.effective_at]
        self._plans.append(plan)

    def take(self, message: Multipliers, appended_at: float | None) -> bool:
        """Take a message as it stands on the topic, in its turn there; whether it counts.

        Args:
            message: of any leader.
            appended_at: see `is_late`.
        """
        plan, before = SlotPlan.from_message(message), self.newest
        if is_late(message, appended_at):
            self.leave_out(plan)
        else:
            self.add(plan)
        return self.newest is not before

    def is_replaced(self, plan: SlotPlan) -> bool:
        """Whether a plan is of a leader after whom another has spoken."""
        return plan.epoch < self.epoch

    def leave_out(self, plan: SlotPlan) -> None:
        """Note only that there is such a plan: the next one's version is higher, and no leader of
        before counts any more."""
        self.last_version = max(self.last_version, plan.version)
        self.epoch = max(self.epoch, plan.epoch)

    @property
    def newest(self) -> SlotPlan | None:
        """The last plan that came, whether it holds already or not."""
        return self._plans[-1] if self._plans else None

    def at(self, time: float) -> SlotPlan | None:
        """The plan that holds at a time."""
        holding = [plan for plan in self._plans if plan.effective_at <= time]
        return holding[-1] if holding else None

    def limits_after(self, after: float, until: float) -> tuple[Limits, float]:
        """The limits of groups that hold from after a time on, and up to when; `until` at most."""
        holding = self.at(after)
        limits = holding.limits if holding is not None else NO_LIMITS
        for plan in self._plans:
            if after < plan.effective_at < until and plan.limits != limits:
                return limits, plan.effective_at
        return limits, until

    def passed(self, time: float) -> float:
        """How many slots have passed at a time, with a fraction; 0 before the first plan."""
        plan = self.at(time)
        return plan.passed(time) if plan else 0.0

    def held(self, after: float, until: float) -> list[tuple[float, float, SlotPlan]]:
        """Which plans hold in (after, until], those that are remembered: from when to when each."""
        ends = [*(plan.effective_at for plan in self._plans[1:]), np.inf]
        spans = [
            (max(after, plan.effective_at), min(until, end), plan)
            for plan, end in zip(self._plans, ends, strict=False)
        ]
        return [span for span in spans if span[1] > span[0]]

    def allotted(self, shard: int, after: float, until: float) -> float:
        """How many slots of (after, until] are a shard's, on average of where they lie."""
        return sum(
            (plan.passed(end) - plan.passed(start)) * plan.share_of(shard)
            for start, end, plan in self.held(after, until)
        )

    def shift(self, seconds: float) -> None:
        """Move all plans: the clock was set by so much, and the slots go on where they were."""
        self._plans = [plan.moved(seconds) for plan in self._plans]

    def forget(self, before: float) -> None:
        """Drop the plans that no longer hold at a time."""
        current = self.at(before)
        if current is not None:
            self._plans = self._plans[self._plans.index(current) :]

    def between(self, after: float, until: float) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """All slots in (after, until]: times, rising, and owners. Forgets plans before `after`."""
        found = [plan.between(start, end) for start, end, plan in self.held(after, until)]
        self.forget(after)
        if len(found) == 1:
            return found[0]
        return (
            np.concatenate([np.empty(0), *(times for times, _ in found)]),
            np.concatenate([np.empty(0, np.int32), *(owners for _, owners in found)]),
        )


def next_multipliers(
    timeline: SlotTimeline,
    *,
    now: float,
    effective_at: float,
    multiplier: float,
    stretch: Stretch,
    shares: Mapping[int, float],
    cause: str,
    why: str = "",
    epoch: int = 0,
    leader: str = "",
    limits: Limits = NO_LIMITS,
) -> Multipliers:
    """The message that goes on from a timeline: slots keep their numbers through the change.

    Args:
        timeline: the plans so far.
        now: clock seconds.
        effective_at: `first_moment` of the change.
        multiplier: λ₀.
        stretch: the budget from `effective_at` on.
        shares: of the shards, in the order in which they are to lie.
        cause: as in the message, as are the rest.
        why: the cause in words.
        epoch: of the leadership.
        leader: who sends it.
        limits: of groups of hosts.
    """
    newest = timeline.newest
    ramps = stretch.ramp_seconds > 0
    return Multipliers(
        version=timeline.last_version + 1,
        computed_at=now,
        effective_at=effective_at,
        multiplier=multiplier,
        crawls_per_second=stretch.rate,
        first_slot=newest.passed(effective_at) if newest is not None else 0.0,
        allotments=[Allotment(shard, share) for shard, share in shares.items()],
        cause=cause,
        epoch=epoch,
        leader=leader,
        ramp_to=stretch.ramp_to if ramps else None,
        ramp_seconds=stretch.ramp_seconds if ramps else 0.0,
        why=why,
        groups=list(limits.groups),
        default_groups=limits.default,
    )


def first_moment(timeline: SlotTimeline, wished: float) -> float:
    """When the next plan may take effect at the earliest: no plan takes slots from before."""
    newest = timeline.newest
    return wished if newest is None else max(wished, newest.effective_at)
