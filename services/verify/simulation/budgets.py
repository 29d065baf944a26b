"""The budget, as operators set it, coordinators said it, and schedulers kept to it."""

from collections.abc import Iterator, Sequence
from typing import Final

from services.verify.checks import limits
from services.verify.checks.downtime import down_within
from services.verify.checks.finding import Finding
from services.verify.ledger import Ledger
from services.verify.records import decoded
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.facts import Facts
from services.verify.simulation.plan import SimulationPlan
from shared.contracts.messages import Multipliers
from shared.contracts.topics import MULTIPLIERS
from shared.pacing.slots import SlotTimeline

HOLDS_SECONDS: Final = 3.5
"""A new budget holds within these: a plan that came too late is made again, twice as far ahead."""

EARLY_SECONDS: Final = 0.5
"""By so much the clocks of a scheduler and of the broker may differ."""

ON_THE_WAY_SECONDS: Final = 2.0
"""From a slot to the broker: filling it, and the way."""

SURE_AGAIN_SECONDS: Final = 3.0
"""A broker that is back has a scheduler's requests so soon: first it must have heard the scheduler,
said which shards it has, and where their topics end, and each of that may be slow. Where it goes
down again before, all of it begins anew."""

_HARMLESS: Final = frozenset({"bandwidth", "duplicate", "bad-message", "marker"})
"""Faults that hold nobody up."""

_ROUNDING: Final = 1e-6


def budgets(ledger: Ledger, facts: Facts, timeline: SlotTimeline) -> Iterator[Finding]:
    """What holds of the budget.

    Args:
        ledger: of the run.
        facts: of the run.
        timeline: the plans that hold.
    """
    said = [message for _, message in decoded(Multipliers, ledger.raw[MULTIPLIERS.name])]
    yield _kept(ledger, facts, said, timeline)
    yield _new_ones(facts, said, timeline)
    yield _leaders(said)


def in_time(ledger: Ledger, plan: SimulationPlan) -> Finding:
    """The broker has a request soon after its slot, never long before or after.

    What was on its way when the broker went down comes soon after its return: not before its
    scheduler is sure again that the shard is its own.

    Args:
        ledger: of the run.
        plan: says when the broker was down.
    """
    away = [
        (BEGINNING + fault.at, BEGINNING + fault.at + fault.seconds + SURE_AGAIN_SECONDS)
        for fault in plan.faults
        if fault.kind == "broker-down"
    ]

    def offenders() -> Iterator[str]:
        for asked in ledger.requests:
            slot, written_at = asked.request.requested_at, asked.written_at
            longest = max(plan.scale.session_seconds, down_within(away, slot, written_at))
            if not -EARLY_SECONDS <= written_at - slot <= longest + ON_THE_WAY_SECONDS:
                yield (
                    f"{asked.request.url}: slot {slot - BEGINNING:.3f}, at the broker "
                    f"{written_at - BEGINNING:.3f}"
                )

    what = "requests come soon after their slots"
    return Finding.of("in time", what, offenders(), looked_at=len(ledger.requests))


def _kept(
    ledger: Ledger, facts: Facts, said: Sequence[Multipliers], timeline: SlotTimeline
) -> Finding:
    """No window holds more slots than the rates of the plans and one, wherever slots are."""
    changes: list[tuple[float, float]] = []
    for at in sorted({message.effective_at for message in said}):
        plan = timeline.at(at)
        if plan is not None and (not changes or changes[-1][1] != plan.slots_per_second):
            changes.append((at, plan.slots_per_second))
    if not changes:
        return Finding.of("budget", "there is a plan", ["there is none"])
    return limits.budget(ledger, changes, BEGINNING + facts.ended_at)


def _new_ones(facts: Facts, said: Sequence[Multipliers], timeline: SlotTimeline) -> Finding:
    """What is shared out is what was set, and holds soon where nothing holds it up."""
    plan, budgets = facts.plan, facts.truth.budgets
    is_calm = all(fault.kind in _HARMLESS for fault in plan.faults)
    quiet_from = 0.0 if is_calm else plan.scale.seconds - 1.0
    judged = [
        (at, rate)
        for place, (at, rate) in enumerate(budgets)
        if at >= max(quiet_from, plan.scale.begin_seconds)
        and all(later >= at + HOLDS_SECONDS for later, _ in budgets[place + 1 :])
    ]

    def offenders() -> Iterator[str]:
        for message in said:
            at, rate = message.effective_at - BEGINNING, message.crawls_per_second
            if not any(abs(rate - one) <= _ROUNDING for _, one in budgets):
                yield f"{rate}/s from {at:.3f} on: nobody has set that"
        for at, rate in judged:
            held = timeline.at(BEGINNING + at + HOLDS_SECONDS)
            if held is None or abs(held.slots_per_second - rate) > _ROUNDING:
                found = "no plan" if held is None else f"{held.slots_per_second}/s"
                yield f"{rate}/s was set at {at:.3f}: {HOLDS_SECONDS} s later there is {found}"

    what = f"a budget holds within {HOLDS_SECONDS} s, and no other"
    return Finding.of("new budget", what, offenders(), looked_at=len(judged))


def _leaders(said: Sequence[Multipliers]) -> Finding:
    """In each epoch one coordinator decides."""
    leaders: dict[int, set[str]] = {}
    for message in said:
        leaders.setdefault(message.epoch, set()).add(message.leader)
    two = [f"epoch {epoch}: {sorted(of)}" for epoch, of in leaders.items() if len(of) > 1]
    return Finding.of(
        "leaders", "in each epoch one coordinator decides", two, looked_at=len(leaders)
    )
