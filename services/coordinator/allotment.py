"""Who is there, what each shard gets, and when that must be said again. Pure.

Wall times are seconds of a monotonic clock, clock times are the clock's; both are arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.coordinator.solver import gather, solve_shares, solve_threshold
from shared.contracts.messages import DemandCurve

SMOOTHING = 0.5
"""How far shares move towards what the last reports ask for, each second. Reports are a second
old and not of one moment; without this, shares swing around what is right."""

SLOTS_IN_RELAXATION = 256
"""A backlog is worked off over no fewer slots, or a small budget would go to one shard at once."""

RELAXATION_SECONDS = 5.0
"""... and over no less than this (wall): a few rounds of reports."""

ADOPTED = "adopted"
"""Cause of what an earlier coordinator decided."""

_MATERIAL_MULTIPLIER = 0.005
"""Relative change of λ₀ that is worth a message."""

_MATERIAL_SHARE = 0.02
"""Part of the whole budget that must move between shards to be worth a message."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What holds next."""

    multiplier: float
    """λ₀."""
    crawls_per_second: float
    shares: Mapping[int, float]
    cause: str
    material: bool
    """Whether it differs from the last decision enough to be worth a message."""


@dataclass(slots=True)
class Shard:
    """What is known of a shard."""

    heard_at: float
    """Wall seconds of its last report."""
    curve: DemandCurve | None = None
    """None: known only from the multipliers of an earlier coordinator."""


@dataclass(slots=True)
class Fleet:
    """All shards ever heard of, and the last decision."""

    silent_after_seconds: float
    """Wall seconds without a report after which a shard is silent."""
    shards: dict[int, Shard] = field(default_factory=dict)
    last: Decision | None = None
    _live: frozenset[int] = frozenset()

    def adopt(self, multiplier: float, rate: float, shares: Mapping[int, float], at: float) -> None:
        """Go on from what an earlier coordinator decided.

        Its shards keep their shares until they report or have been silent for too long. Does
        nothing once there are decisions of our own.
        """
        if self.last is not None and self.last.cause != ADOPTED:
            return
        self.last = Decision(multiplier, rate, dict(shares), ADOPTED, material=False)
        self.shards = {n: known for n, known in self.shards.items() if known.curve is not None}
        for shard, share in shares.items():
            if share > 0:
                self.shards.setdefault(shard, Shard(at))

    def report(self, curve: DemandCurve, heard_at: float) -> bool:
        """Take a shard's report; an older one never overwrites a newer one.

        Returns:
            whether it was taken.
        """
        known = self.shards.get(curve.shard)
        if known is None:
            self.shards[curve.shard] = Shard(heard_at, curve)
            return True
        if known.curve is not None and curve.reported_at < known.curve.reported_at:
            return False
        known.curve = curve
        known.heard_at = max(known.heard_at, heard_at)
        return True

    def live(self, wall: float) -> frozenset[int]:
        """Shards that are not silent."""
        return frozenset(
            number
            for number, shard in self.shards.items()
            if wall - shard.heard_at <= self.silent_after_seconds
        )

    def decide(self, budget: float, wall: float, relaxation_seconds: float) -> Decision:
        """What should hold now, given all reports.

        Args:
            budget: R, crawls per second of the clock.
            wall: now.
            relaxation_seconds: H, seconds of the clock (`relaxation`).
        """
        live = self.live(wall)
        reports = {
            number: shard.curve
            for number, shard in self.shards.items()
            if number in live and shard.curve is not None
        }
        multiplier = self.last.multiplier if self.last else 0.0
        shares: dict[int, float] = {}
        if reports:
            curves = gather(reports)
            multiplier = solve_threshold(curves, budget)
            shares = solve_shares(curves, budget, relaxation_seconds)
        shares = self._with_held_ones(shares, live - reports.keys())
        cause = self._cause(budget, live)
        if cause == "demand" and self.last is not None:
            shares = _towards(shares, self.last.shares)
        shares |= {number: 0.0 for number in self.shards if number not in live}
        return Decision(
            multiplier,
            budget,
            shares,
            cause,
            material=cause != "demand" or self._is_material(multiplier, shares),
        )

    def decided(self, decision: Decision, wall: float) -> None:
        """Note that a decision was published."""
        self.last = decision
        self._live = self.live(wall)

    def _with_held_ones(
        self, shares: Mapping[int, float], held: frozenset[int]
    ) -> dict[int, float]:
        """Shards of the last decision that have not reported to us yet keep what they had."""
        before = self.last.shares if self.last else {}
        kept = {number: before.get(number, 0.0) for number in held}
        rest = max(1.0 - sum(kept.values()), 0.0)
        return kept | {number: share * rest for number, share in shares.items()}

    def _cause(self, budget: float, live: frozenset[int]) -> str:
        if self.last is None or self.last.cause == ADOPTED:
            return "start"
        if budget != self.last.crawls_per_second:
            return "bandwidth"
        if self._live - live:
            return "silent-shard"
        if live - self._live:
            return "new-shard"
        return "demand"

    def _is_material(self, multiplier: float, shares: Mapping[int, float]) -> bool:
        if self.last is None:
            return True
        moved = sum(
            max(share - self.last.shares.get(number, 0.0), 0.0) for number, share in shares.items()
        )
        before = self.last.multiplier
        return moved > _MATERIAL_SHARE or abs(multiplier - before) > _MATERIAL_MULTIPLIER * before


def relaxation(budget: float, floor_seconds: float) -> float:
    """H: in how many seconds of the clock a backlog is to be worked off.

    Args:
        budget: R, crawls per second of the clock.
        floor_seconds: the least, `RELAXATION_SECONDS` of the wall in seconds of the clock.
    """
    return max(floor_seconds, SLOTS_IN_RELAXATION / budget) if budget > 0 else floor_seconds


def _towards(wanted: Mapping[int, float], before: Mapping[int, float]) -> dict[int, float]:
    """Shares on their way from those before to those wanted; a shard that wants nothing gets it."""
    moved = {
        number: before.get(number, 0.0) + SMOOTHING * (share - before.get(number, 0.0))
        for number, share in wanted.items()
    }
    moved |= {number: 0.0 for number, share in wanted.items() if share == 0.0}
    total, target = sum(moved.values()), sum(wanted.values())
    if total <= 0:
        return dict(wanted)
    return {number: share * target / total for number, share in moved.items()}
