"""Faults of the budget: who fills which slots, when, and by whose word."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
from aiokafka import ConsumerRecord

from services.coordinator import core, leadership
from services.coordinator.allotment import Change
from services.coordinator.core import Coordination, Moment
from services.coordinator.leadership import LeaseWatch
from services.scheduler.flow.pacer import Pacer
from services.scheduler.flow.slot_filler import Emission, SlotFiller
from services.scheduler.state.rows import NEVER
from services.scheduler.worker import Scheduler
from services.verify.mutants.mutant import Planted, Promise, breaks
from services.verify.simulation.plan import Kind
from services.verify.simulation.replacing import instead
from shared.contracts.codec import BadMessage, decode
from shared.contracts.messages import Multipliers
from shared.pacing.budget import Stretch
from shared.pacing.slots import SlotPlan, next_multipliers
from shared.runtime.clock_offset import ClockOffset
from shared.runtime.membership import Membership
from shared.runtime.wall_time import WallTime
from shared.store.lease import Lease

_DEAF: Final[tuple[Kind, ...]] = ("deaf", "cut-broker", "bandwidth")


@breaks(Promise.BUDGET, "pause", "deaf", estimators=1)
def never_in_doubt() -> Planted:
    """A scheduler goes on though it was not heard, and its shards may be another's by now."""
    return instead(Membership, "is_sure", property(lambda _self: True))


@breaks(Promise.BUDGET)
@contextmanager
def slots_filled_twice() -> Iterator[None]:
    """Each tick fills the slots of the tick before once more."""
    tick, fill = Pacer.tick, SlotFiller.fill

    async def tick_again(self: Pacer) -> None:
        self._filled_until -= self._tick_seconds
        await tick(self)

    def fill_again(self: SlotFiller, *given: Any) -> list[Emission]:
        for shard in self._shards.values():
            shard.filled_until = NEVER
        return fill(self, *given)

    with instead(Pacer, "tick", tick_again), instead(SlotFiller, "fill", fill_again):
        yield


@breaks(Promise.BUDGET)
def slots_of_others() -> Planted:
    """A scheduler fills all slots with pages of its own."""
    fill = SlotFiller.fill

    def fill_all(self: SlotFiller, times: Any, owners: Any, plan: SlotPlan) -> list[Emission]:
        ours = min(self._shards, default=-1)
        return fill(self, times, np.full_like(owners, ours), plan)

    return instead(SlotFiller, "fill", fill_all)


@breaks(Promise.BUDGET, "cut-broker", "broker-down", "pause", coordinators=1)
def late_plans_taken() -> Planted:
    """A scheduler goes by a plan that came too late for the others."""

    def receive(self: Scheduler, record: ConsumerRecord) -> None:
        with suppress(BadMessage):
            self.timeline.take(decode(Multipliers, record.value), None)

    return instead(Scheduler, "_receive_multipliers", receive)


@breaks(Promise.BUDGET, *_DEAF)
def plans_hold_at_once() -> Planted:
    """A plan takes effect when it is made, before anybody can know it."""
    return instead(Coordination, "_effective_at", lambda _self, now: now.clock)


@breaks(Promise.BUDGET)
def slots_begin_anew() -> Planted:
    """Each plan begins with a slot, wherever the one before was."""

    def begun(*given: Any, **named: Any) -> Multipliers:
        message = next_multipliers(*given, **named)
        begin = max(math.ceil(message.first_slot) - 1e-6, 0.0)
        return msgspec.structs.replace(message, first_slot=begin)

    return instead(core, "next_multipliers", begun)


@breaks(Promise.NEW_BUDGET)
def more_than_was_set() -> Planted:
    """The budget that is shared out is a tenth larger than the one that was set."""
    stretch = Coordination._stretch  # noqa: SLF001

    def larger(self: Coordination, clock: float) -> Stretch:
        found = stretch(self, clock)
        return found if self.budget is None else replace(found, rate=1.1 * found.rate)

    return instead(Coordination, "_stretch", larger)


@breaks(Promise.NEW_BUDGET, "bandwidth")
def bandwidth_unheard() -> Planted:
    """The first budget stands for ever."""
    receive = Coordination.receive_bandwidth

    def once(self: Coordination, message: Any) -> bool:
        return self.budget is None and receive(self, message)

    return instead(Coordination, "receive_bandwidth", once)


@breaks(Promise.NEW_BUDGET, "bandwidth")
def bandwidth_takes_effect_late() -> Planted:
    """A new plan takes effect five seconds later than it could."""
    effective_at = Coordination._effective_at  # noqa: SLF001

    def later(self: Coordination, now: Moment) -> float:
        is_new = self._is_news
        return effective_at(self, now) + (5.0 if is_new else 0.0)

    return instead(Coordination, "_effective_at", later)


@breaks(Promise.NEW_BUDGET, "bandwidth")
def bandwidth_waits_for_other_news() -> Planted:
    """A new budget is no reason for a new plan."""
    change = Coordination._change  # noqa: SLF001

    def no_change(self: Coordination, *given: Any) -> Change:
        found = change(self, *given)
        return Change("") if found.cause == "bandwidth" else found

    return instead(Coordination, "_change", no_change)


@breaks(Promise.KILLED, "kill", "term")
def nobody_takes_over() -> Planted:
    """A leader that is gone is waited for."""

    def may_take(_self: LeaseWatch, lease: Lease, _now: float) -> bool:
        return not lease.epoch

    return instead(LeaseWatch, "may_take", may_take)


@breaks(Promise.KILLED, "pause", "cut-database", "kill")
def one_epoch_for_all_leaders() -> Planted:
    """Who takes over leads in the epoch of the leader before."""
    module: Any = leadership
    take_lease = module.take_lease
    epochs: list[int] = []

    async def take(*given: Any) -> int | None:
        taken = await take_lease(*given)
        if taken is None:
            return None
        epochs.append(taken)
        return epochs[0]

    return instead(leadership, "take_lease", take)


@breaks(Promise.BUDGET, "clock", "kill")
def by_its_own_clock() -> Planted:
    """A worker goes by its machine's clock, and not by the broker's."""

    async def measure(_self: ClockOffset) -> bool:
        return False

    return instead(ClockOffset, "measure", measure)


@breaks(Promise.BUDGET, "clock", "kill")
def clock_corrected_the_wrong_way() -> Planted:
    """A clock that is ahead is set forward, one that is behind is set back."""
    steer = WallTime.steer

    def steer_away(self: WallTime, least: float, most: float) -> float:
        now, _ = self.read()
        offset = now - _steady()
        return steer(self, 2 * offset - most, 2 * offset - least)

    return instead(WallTime, "steer", steer_away)


def _steady() -> float:
    import time  # noqa: PLC0415 - as the simulation has it

    return time.clock_gettime(time.CLOCK_MONOTONIC)
