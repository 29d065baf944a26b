"""Replays of policies that are crawl rates: the LambdaCrawl family, its peers and LDS.

[K] crawls a page without complete signals at random times of rate ρ, and one with complete
signals on each signal with probability p = ρ/Δ. Under a budget of slots: a signal that is heeded
waits its turn for the next slot; every other slot goes to a page without complete signals, drawn
with probabilities in proportion to ρ. Both have the rates of the paper and spend the budget to
the crawl. Learning versions solve for the rates again at the start of every epoch; pages that
become known are crawled from the next epoch on. None of them knows of host limits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.trace import Trace, complete_pages, trace_parameters
from shared.policy.compiled import compiled
from shared.policy.lambdacrawl.costs import crawl_probabilities
from shared.policy.lambdacrawl.learning import ObservedHistory, learned_change_rates

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EPOCH_DAYS = 1.0
"""[K] supplement 9.6: rates are learned, and solved for, every day."""


class Facts(NamedTuple):
    """What the rates are solved from."""

    importance: Floats
    complete: NDArray[np.bool_]
    change_rate: Floats | None
    """Δ, for policies that are told; None for those that learn."""
    history: ObservedHistory | None
    """For those that learn."""
    bandwidth: float
    """Crawls a day."""


Solver = Callable[[Facts], Floats]
"""Facts → crawl rates per day."""


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """A policy of rates."""

    solve: Solver
    learns: bool = False
    heeds_signals: bool = True
    """Whether pages with complete signals are crawled on them."""

    def parameters(self) -> dict[str, Any]:
        """For the report."""
        rates = "learned" if self.learns else "those of the whole trace"
        about = {"change_rates": rates, "heeds_complete_signals": self.heeds_signals}
        return about | {"epoch_days": EPOCH_DAYS} if self.learns else about


class _State(NamedTuple):
    last_crawl: Floats
    changed: NDArray[np.bool_]
    queued: NDArray[np.bool_]
    signals: Floats
    record_pages: Integers
    """One crawl record a slot; page −1: nothing was crawled."""
    record_days: Floats
    record_changed: NDArray[np.uint8]


def run_by_rate(
    trace: Trace,
    slot_days: Floats,
    policy: RatePolicy,
    seed: int,
    epoch_days: float = EPOCH_DAYS,
    told: Callable[[float, Floats], None] | None = None,
) -> NDArray[np.int64]:
    """Replay `trace`; the page of each slot. `told` hears (day, rates) at the start of epochs."""
    known = trace_parameters(trace)
    complete = complete_pages(known)
    if not policy.heeds_signals:
        complete[:] = False
    count, slots = len(trace), slot_days.size
    state = _State(
        trace.born_days.copy(),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
        np.zeros(count),
        np.full(slots, -1, np.int64),
        np.empty(slots),
        np.empty(slots, np.uint8),
    )
    events = trace.merged_events()
    crawled = np.full(slots, -1, np.int64)
    ends = np.append(np.arange(epoch_days, trace.days, epoch_days), trace.days)
    bandwidth = slots / (trace.days - trace.judged_from)
    rng = np.random.default_rng([seed, 7])
    heeded = rng.random(events[0].size)
    event, first, begin, queue = 0, 0, 0.0, np.empty(0, np.int64)
    rates, chances = np.empty(0), np.empty(0)
    for end in ends:
        if policy.learns or begin == 0:
            facts = Facts(
                trace.importance,
                complete,
                None if policy.learns else known.change_rate,
                _history(trace, state, first, begin) if policy.learns else None,
                bandwidth,
            )
            rates = policy.solve(facts)
            if told is not None:
                told(begin, rates)
            believed = _believed(known.change_rate, facts)
            chances = np.where(complete, crawl_probabilities(rates, believed), 0.0)
        shares = np.cumsum(np.where(complete | (trace.born_days > begin), 0.0, rates))
        stop = int(np.searchsorted(slot_days, end, side="right"))
        draws = rng.random(stop - first)
        event, queue = _run_epoch(
            state,
            trace.born_days,
            shares,
            chances,
            heeded,
            draws,
            slot_days,
            first,
            stop,
            *events,
            event,
            queue,
            crawled,
        )
        first, begin = stop, float(end)
    return crawled


def _believed(true_rate: Floats, facts: Facts) -> Floats:
    """The change rates that the solution was made from."""
    if facts.history is None:
        return true_rate
    return learned_change_rates(facts.history, facts.complete)


def _history(trace: Trace, state: _State, records: int, day: float) -> ObservedHistory:
    pages = state.record_pages[:records]
    order = np.argsort(pages, kind="stable")
    order = order[np.searchsorted(pages[order], 0) :]
    offsets = np.searchsorted(pages[order], np.arange(len(trace) + 1))
    return ObservedHistory(
        state.record_days[:records][order],
        state.record_changed[:records][order],
        offsets,
        state.signals,
        np.maximum(day - trace.born_days, 0.0),
    )


@compiled
def _run_epoch(
    state: _State,
    born: Floats,
    shares: Floats,
    chances: Floats,
    heeded: Floats,
    draws: Floats,
    slot_days: Floats,
    first: int,
    stop: int,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    queue: Integers,
    crawled: Integers,
) -> tuple[int, Integers]:
    """Slots `first` to `stop`; returns the next event, and the heeded signals still waiting."""
    waiting = list(queue)
    turn = 0
    for slot in range(first, stop):
        now = slot_days[slot]
        while event < event_days.size and event_days[event] <= now:
            page = event_pages[event]
            if event_kinds[event] == 0:
                state.changed[page] = state.changed[page] or event_days[event] > born[page]
            elif event_days[event] >= born[page]:
                state.signals[page] += 1.0
                if heeded[event] < chances[page] and not state.queued[page]:
                    state.queued[page] = True
                    waiting.append(page)
            event += 1
        if turn < len(waiting):
            page = waiting[turn]
            turn += 1
            state.queued[page] = False
        elif shares[-1] > 0.0:
            page = np.searchsorted(shares, draws[slot - first] * shares[-1], side="right")
            page = min(page, shares.size - 1)
        else:
            continue
        state.record_pages[slot] = page
        state.record_days[slot] = max(now - state.last_crawl[page], 0.0)
        state.record_changed[slot] = state.changed[page]
        state.last_crawl[page] = now
        state.changed[page] = False
        crawled[slot] = page
    left = np.empty(len(waiting) - turn, np.int64)
    for index in range(left.size):
        left[index] = waiting[turn + index]
    return event, left


@compiled
def known_by_then(order: Integers, slot_days: Floats, born: Floats) -> Integers:
    """The page of each slot: the next one of `order` that is known by then, −1 where none is.

    Pages that are not known yet are passed over; after its end the order begins anew.
    """
    crawled = np.full(slot_days.size, -1, np.int64)
    turn = 0
    for slot in range(slot_days.size):
        for _ in range(order.size):
            page = order[turn % order.size]
            turn += 1
            if born[page] <= slot_days[slot]:
                crawled[slot] = page
                break
    return crawled
