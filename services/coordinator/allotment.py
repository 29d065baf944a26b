"""Who is there, what each shard gets, and when that must be said again. Pure.

Wall times are seconds of a monotonic clock, clock times are the clock's; both are arguments.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.coordinator import capacity, reasons
from services.coordinator.capacity import Crawlers, crawlers_of
from services.coordinator.solver import (
    Curves,
    gather,
    limits_of,
    solve_slots,
    solve_threshold,
)
from services.coordinator.usage import Made, Usage
from shared.contracts.messages import DemandCurve
from shared.pacing.budget import Stretch

SMOOTHING = 0.5
"""How far shares move towards what the last reports ask for, each second. Reports are a second
old and not of one moment; without this, shares swing around what is right."""

SLOTS_IN_RELAXATION = 256
"""A backlog is worked off over no fewer slots, or a small budget would go to one shard at once."""

RELAXATION_SECONDS = 5.0
"""... and over no less than this (wall): a few rounds of reports."""

ADOPTED = "adopted"
"""Cause of what another coordinator decided."""

MATERIAL_MULTIPLIER = 0.005
"""Relative change of λ₀ that is worth a message."""

MATERIAL_SHARE = 0.02
"""Part of the whole budget that must move between shards to be worth a message."""

HICCUP_SHARE = 0.5
"""A shard that was not heard of for so much of the time after which it is silent was away: cut off,
or standing still."""

EXCUSED_SECONDS = 30.0
"""So long after it was away (wall), a shard that is away again, but not silent, is a slow one."""

BEGINNING_SECONDS = 5.0
"""For so long (wall) a shard that was loaded, or is picked from again, is not judged by what it
leaves empty: its hosts wait as if they had just been crawled, and reports are a second old."""

_ROUTINE = frozenset({"demand", "ramp"})
"""Causes of decisions that follow the last one smoothly."""


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
    why: str = ""
    live: frozenset[int] = frozenset()
    slot_value: float | None = None
    """λ*: what a slot is worth now; None: nobody has reported."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is known of the budget's next stretch before the shards are looked at."""

    cause: str
    """start, takeover, bandwidth or schedule; empty: the budget goes on as it was said."""
    why: str = ""


@dataclass(slots=True)
class Shard:
    """What is known of a shard."""

    heard_at: float
    """Wall seconds of its last report."""
    curve: DemandCurve | None = None
    """None: known only from the multipliers of another coordinator."""
    usage: Usage = field(default_factory=Usage)
    back_at: float = -math.inf
    """Clock: it was away until then. What it crawled before says nothing about what it can."""
    back_at_wall: float = -math.inf
    begun_at_wall: float = -math.inf
    """Of the first report of this run."""


@dataclass(slots=True)
class Fleet:
    """All shards ever heard of, and the last decision."""

    silent_after_seconds: float
    """Wall seconds without a report after which a shard is silent."""
    work_conserving: bool = True
    """Whether slots are for pages below λ₀ too, where none is above it."""
    shards: dict[int, Shard] = field(default_factory=dict)
    last: Decision | None = None
    _short: set[int] = field(default_factory=set)
    """Shards that turned out to use less than they had, since the last decision."""
    _gathered: Curves | None = None
    _gathered_of: dict[int, DemandCurve] = field(default_factory=dict)
    """The reports that `_gathered` is made of. They are kept: where one was, another may come."""

    def adopt(self, multiplier: float, rate: float, shares: Mapping[int, float], at: float) -> None:
        """Go on from what another coordinator decided.

        Its shards keep their shares until they report or have been silent for too long.
        """
        live = frozenset(number for number, share in shares.items() if share > 0)
        self.last = Decision(multiplier, rate, dict(shares), ADOPTED, material=False, live=live)
        self._short.clear()
        self.shards = {n: known for n, known in self.shards.items() if known.curve is not None}
        for shard in live:
            self.shards.setdefault(shard, Shard(at))

    def report(self, curve: DemandCurve, heard_at: float, clock: float) -> DemandCurve | None:
        """Take a shard's report; an older one never overwrites a newer one.

        Of one run of a scheduler the sequence says which is newer. Of two, the broker's order does:
        clocks have no say, as they are wrong, or are set.

        Args:
            curve: the report.
            heard_at: wall seconds.
            clock: now, of the clock.

        Returns:
            the report before, if this one goes on from it.
        """
        known = self.shards.setdefault(curve.shard, Shard(heard_at))
        before = known.curve
        away_seconds = heard_at - known.heard_at
        was_silent = away_seconds > self.silent_after_seconds
        was_away = away_seconds > HICCUP_SHARE * self.silent_after_seconds
        if was_silent or (was_away and heard_at - known.back_at_wall > EXCUSED_SECONDS):
            known.back_at, known.back_at_wall = clock, heard_at
        known.heard_at = max(known.heard_at, heard_at)
        if before is not None and _is_older(curve, before):
            return None
        known.curve = curve
        if before is None or was_silent or not _is_same_run(curve, before):
            # It could not use what it had while it was away, or was loaded; and another process may
            # be faster or slower.
            known.usage = Usage()
            if curve.run and (before is None or not _is_same_run(curve, before)):
                known.begun_at_wall = heard_at
            return None
        return before

    def shift(self, seconds: float) -> None:
        """Our clock was set by so much: what we remember of its times moves with it."""
        for shard in self.shards.values():
            shard.back_at += seconds

    def observe(self, number: int, since: float, seconds: float, made: Made) -> None:
        """Take what a shard made of its slots between two reports.

        Args:
            number: of the shard.
            since: of the first report, of the clock.
            seconds: between the reports, of the wall.
            made: what it made of them.
        """
        shard = self.shards[number]
        is_beginning = shard.heard_at - seconds < shard.begun_at_wall + BEGINNING_SECONDS
        through = shard.curve.demand[0] if shard.curve is not None else 0.0
        if since < shard.back_at or is_beginning:
            # What it wrote while it was cut off comes when it is back, all at once. And what a
            # worker that was not serving could not use says nothing about what it can use.
            shard.usage.remember(seconds, made)
        elif shard.usage.observe(seconds, made, through, counts_unused=not self.work_conserving):
            self._short.add(number)

    def live(self, wall: float) -> frozenset[int]:
        """Shards that are not silent."""
        return frozenset(
            number
            for number, shard in self.shards.items()
            if wall - shard.heard_at <= self.silent_after_seconds
        )

    def crawlers(self, wall: float) -> Crawlers:
        """What the crawlers of the live shards are seen to do."""
        return crawlers_of([self.shards[number].usage for number in self.live(wall)])

    def curves(self, wall: float) -> Curves | None:
        """The live shards' curves on one grid; None: there are none yet."""
        live = self.live(wall)
        reports = {
            number: shard.curve
            for number, shard in self.shards.items()
            if number in live and shard.curve is not None
        }
        known = self._gathered_of
        same = {number for number, curve in reports.items() if known.get(number) is curve}
        if not len(same) == len(reports) == len(known):
            self._gathered = gather(reports, self._gathered, same) if reports else None
            self._gathered_of = reports
        return self._gathered

    def next_silence(self, wall: float) -> float:
        """When the next shard is silent, if it does not report before; infinite: there is none."""
        live = self.live(wall)
        heard = min((self.shards[number].heard_at for number in live), default=math.inf)
        return heard + self.silent_after_seconds

    def is_unshared(self, number: int) -> bool:
        """Whether a shard reports to which the last decision gives nothing, as it was not there."""
        return self.last is None or number not in self.last.live

    def decide(
        self, stretch: Stretch, planning: float, change: Change, wall: float, speed: float
    ) -> Decision:
        """What should hold now, given all reports.

        Args:
            stretch: the budget from the decision's effect on.
            planning: R that λ₀ and the shares are for, crawls per second of the clock.
            change: what the budget does.
            wall: now.
            speed: clock seconds in one of the wall.
        """
        live = self.live(wall)
        if not live and self.last is not None:
            # There are no others to have what is theirs: it goes on, as without a coordinator.
            live = self.last.live
        curves = self.curves(wall)
        # Slots that wait for the crawlers buy nothing: the threshold is that of the others.
        planning *= 1.0 - self.crawlers(wall).held_share
        reporting = frozenset(curves.shards if curves is not None else ())
        multiplier = self.last.multiplier if self.last else 0.0
        shares: dict[int, float] = {}
        slot_value = None
        if curves is not None:
            usages = {number: shard.usage for number, shard in self.shards.items()}
            limits = limits_of(curves, capacity.limits(usages, planning, speed))
            horizon = relaxation(planning, RELAXATION_SECONDS * speed)
            made = capacity.most_made(curves, usages, limits, work_conserving=self.work_conserving)
            multiplier = solve_threshold(curves, min(planning, made), limits)
            shares, slot_value = solve_slots(curves, planning, horizon, limits)
        shares = self._with_held_ones(shares, live - reporting)
        cause = self._cause(change, live, stretch)
        if cause in _ROUTINE and self.last is not None:
            shares = _towards(shares, self.last.shares)
        shares |= {number: 0.0 for number in self.shards if number not in live}
        return Decision(
            multiplier,
            stretch.rate,
            shares,
            cause,
            material=cause not in _ROUTINE or self._is_material(multiplier, shares),
            why=self._why(cause, change, live, shares, multiplier, stretch, speed),
            live=live,
            slot_value=slot_value,
        )

    def decided(self, decision: Decision) -> None:
        """Note that a decision was published."""
        self.last = decision
        self._short.clear()

    def _with_held_ones(
        self, shares: Mapping[int, float], held: frozenset[int]
    ) -> dict[int, float]:
        """Shards of the last decision that have not reported to us yet keep what they had."""
        before = self.last.shares if self.last else {}
        kept = {number: before.get(number, 0.0) for number in held}
        rest = max(1.0 - sum(kept.values()), 0.0)
        return kept | {number: share * rest for number, share in shares.items()}

    def _cause(self, change: Change, live: frozenset[int], stretch: Stretch) -> str:
        if change.cause or self.last is None:
            return change.cause or "start"
        if self.last.live - live:
            return "silent-shard"
        if live - self.last.live:
            return "new-shard"
        if self._short & live:
            return "shortfall"
        return "ramp" if stretch.ramp_seconds > 0 else "demand"

    def _why(
        self,
        cause: str,
        change: Change,
        live: frozenset[int],
        shares: Mapping[int, float],
        multiplier: float,
        stretch: Stretch,
        speed: float,
    ) -> str:
        if self.last is None:
            return change.why or reasons.started(len(live))
        parts = [change.why] if change.why else []
        if self.last.live - live:
            gone = self.last.live - live
            parts.append(reasons.silent(gone, self.silent_after_seconds, self.last.shares))
        if live - self.last.live:
            parts.append(reasons.came(live - self.last.live, shares))
        if found := self._short & live:
            usable = {number: self.shards[number].usage.usable / speed for number in found}
            parts.append(reasons.short(usable))
        if cause in _ROUTINE:
            moved = _moved(shares, self.last.shares)
            parts.append(reasons.demand(self.last.multiplier, multiplier, moved, stretch))
        return "; ".join(parts)

    def _is_material(self, multiplier: float, shares: Mapping[int, float]) -> bool:
        if self.last is None:
            return True
        before = self.last.multiplier
        return (
            _moved(shares, self.last.shares) > MATERIAL_SHARE
            or abs(multiplier - before) > MATERIAL_MULTIPLIER * before
        )


def _is_same_run(one: DemandCurve, other: DemandCurve) -> bool:
    return (one.instance, one.run) == (other.instance, other.run)


def _is_older(curve: DemandCurve, before: DemandCurve) -> bool:
    """Whether a report was made before another; those without a sequence come as they are made."""
    is_counted = bool(curve.run) and _is_same_run(curve, before)
    return is_counted and curve.sequence <= before.sequence


def relaxation(budget: float, floor_seconds: float) -> float:
    """H: in how many seconds of the clock a backlog is to be worked off.

    Args:
        budget: R, crawls per second of the clock.
        floor_seconds: the least, `RELAXATION_SECONDS` of the wall in seconds of the clock.
    """
    return max(floor_seconds, SLOTS_IN_RELAXATION / budget) if budget > 0 else floor_seconds


def _moved(shares: Mapping[int, float], before: Mapping[int, float]) -> float:
    """Part of the budget that goes to other shards than before."""
    return sum(max(share - before.get(number, 0.0), 0.0) for number, share in shares.items())


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
