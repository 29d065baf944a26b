"""The coordination itself: messages in, the next `multipliers` out. Pure: times are arguments."""

import math
from dataclasses import dataclass, replace

from services.coordinator.allotment import RELAXATION_SECONDS, Decision, Fleet, relaxation
from services.coordinator.solver import check_curve
from shared.contracts.codec import BadMessage
from shared.contracts.messages import Bandwidth, DemandCurve, Multipliers
from shared.pacing.slots import SlotPlan, SlotTimeline, next_multipliers

REFRESH_SECONDS = 5.0
"""The multipliers are said again at least so often (wall), changed or not."""

CLOCK_TOLERANCE_SECONDS = 300.0
"""A report may come from so far (clock) in the future; beyond, its sender's clock is wrong."""

_FAR_AHEAD_SECONDS = 60.0
"""Multipliers that take effect later than this (wall) belong to a clock that ran ahead of ours."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time, on both clocks."""

    clock: float
    """Unix seconds of the injected clock."""
    wall: float
    """Monotonic seconds."""
    speed: float = 1.0
    """Clock seconds in one of the wall."""


class Coordination:
    """Keeps the last of everything, and says what holds next."""

    def __init__(self, silent_after_seconds: float, lead_seconds: float, shards: int) -> None:
        """Start knowing nothing.

        Args:
            silent_after_seconds: wall seconds until a shard counts as silent.
            lead_seconds: wall seconds from a decision to its effect.
            shards: how many there may be.
        """
        self.fleet = Fleet(silent_after_seconds)
        self.timeline = SlotTimeline()
        self.bandwidth: float | None = None
        """Crawls per second of the clock; None: not set."""
        self._lead_seconds = lead_seconds
        self._shards = shards
        self._published_at = -math.inf
        self._decision: Decision | None = None

    @property
    def budget(self) -> float:
        """R, crawls per second of the clock.

        Where the topic holds no bandwidth that can be read, what an earlier coordinator went by
        stands: a bad message that displaced a good one must not stop all crawling.
        """
        if self.bandwidth is not None:
            return self.bandwidth
        return self.fleet.last.crawls_per_second if self.fleet.last else 0.0

    def receive_bandwidth(self, message: Bandwidth) -> bool:
        """Take the budget; the last message stands.

        Returns:
            whether it is another than before.
        """
        changed = message.crawls_per_second != self.bandwidth
        self.bandwidth = message.crawls_per_second
        return changed

    def receive_demand(self, message: DemandCurve, heard_at: float, now: Moment) -> None:
        """Take a shard's report.

        Args:
            message: the report.
            heard_at: wall (monotonic) time at which it was sent.
            now: the time.

        Raises:
            BadMessage: it cannot be used.
        """
        if message.shard >= self._shards:
            raise BadMessage(f"shard {message.shard}: there are only {self._shards}")
        ahead = message.reported_at - now.clock
        if ahead > CLOCK_TOLERANCE_SECONDS + now.speed * RELAXATION_SECONDS:
            raise BadMessage(f"reported {ahead:.0f} s in the future: check the sender's clock")
        try:
            check_curve(message)
        except ValueError as error:
            raise BadMessage(str(error)) from error
        self.fleet.report(message, heard_at)

    def receive_multipliers(self, message: Multipliers, now: Moment) -> bool:
        """Take a message of an earlier coordinator, or our own as it comes back.

        Returns:
            whether it is newer than all that we know: somebody else coordinates, or did.
        """
        newest = self.timeline.newest
        if newest is not None and message.version <= newest.version:
            return False
        self.timeline.add(SlotPlan.from_message(message))
        shares = {a.shard: a.share for a in message.allotments}
        self.fleet.adopt(message.multiplier, message.crawls_per_second, shares, now.wall)
        return True

    def next(self, now: Moment) -> Multipliers | None:
        """The message that is due, if one is; `published` confirms it."""
        budget = self.budget
        horizon = relaxation(budget, RELAXATION_SECONDS * now.speed)
        decision = self.fleet.decide(budget, now.wall, horizon)
        cause = decision.cause
        if not decision.material:
            if now.wall - self._published_at < REFRESH_SECONDS:
                return None
            cause = "refresh"
        self._rebase(now)
        self._decision = decision
        return next_multipliers(
            self.timeline,
            now=now.clock,
            effective_at=now.clock + now.speed * self._lead_seconds,
            multiplier=decision.multiplier,
            crawls_per_second=budget,
            shares=dict(decision.shares),
            cause=cause,
        )

    def published(self, message: Multipliers, now: Moment) -> None:
        """The broker has the message: go on from it."""
        self.timeline.add(SlotPlan.from_message(message))
        if self._decision is not None:
            self.fleet.decided(self._decision, now.wall)
        self._published_at = now.wall

    def _rebase(self, now: Moment) -> None:
        """After a clock that was set back, slots go on from now, not from the far future."""
        newest = self.timeline.newest
        if newest and newest.effective_at > now.clock + now.speed * _FAR_AHEAD_SECONDS:
            here = replace(newest, effective_at=now.clock)
            self.timeline = SlotTimeline([here])
