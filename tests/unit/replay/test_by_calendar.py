"""Production policies are replayed through the scheduler's own shard, and it picks rightly."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import hand_made, paper_trace

from services.replay import columns as state
from services.replay import values
from services.replay.by_calendar import CalendarRun
from services.replay.by_value import CALENDAR, ValuePolicy, run_by_value
from services.replay.engine import take_events
from services.replay.learning import learn_from_crawl
from services.replay.policies import replay_policy
from services.replay.scenarios import SCENARIOS
from services.replay.selecting import (
    Rules,
    admit,
    free_tokens,
    new_lists,
    renew_lists,
    select,
    take_token,
    value_of,
)
from services.replay.slots import Budget
from services.replay.trace import SIGNAL, Trace, trace_parameters
from services.scheduler.state.batches import BATCH_SECONDS
from shared.rules.host_objectives import HostObjectives
from shared.units import SECONDS_PER_DAY

STRETCH = 250
"""Slots that are filled at a time."""

ROUNDING = 2e-6
"""The scheduler's rows have single precision: pages whose values differ by less are tied."""

POLICY = ValuePolicy(values.EXACT, state.PRODUCTION, selection=CALENDAR)


def limited_trace(pages: int, days: float) -> Trace:
    """A population on forty hosts, of which three are limited to less than their pages deserve;
    a tenth of pages is born on the way."""
    trace = paper_trace(pages=pages, days=days, seed=5)
    rng = np.random.default_rng(6)
    limit = np.full(40, np.inf)
    limit[:3] = 1.37, 2.71, 0.577
    born = np.where(rng.random(pages) < 0.1, rng.random(pages) * days / 2, 0.0)
    host = rng.integers(0, 40, pages)
    kept = alone(trace.signal_days, host[trace.signal_pages])
    return replace(
        trace,
        host=host,
        signal_days=trace.signal_days[kept],
        signal_pages=trace.signal_pages[kept],
        signal_sources=trace.signal_sources[kept],
        site=np.arange(40) % 7,
        host_names=tuple(f"h{number}.example" for number in range(40)),
        host_limit=limit,
        born_days=born,
        held=born == 0.0,
    )


def alone(days: np.ndarray, hosts: np.ndarray) -> np.ndarray:
    """Signals that are far enough from others of their hosts: what the scheduler believes of those
    that come together is no matter of its picks."""
    order = np.lexsort((days, hosts))
    near = np.diff(days[order]) < 2 * BATCH_SECONDS / SECONDS_PER_DAY
    near &= np.diff(hosts[order]) == 0
    return np.sort(order[~(np.append(near, False) | np.append(False, near))])


def calendar_picks(trace: Trace, slots: np.ndarray, rules: Rules) -> np.ndarray:
    """What the scheduler picks, one slot at a time."""
    columns, hosts = knowing(trace)
    events = trace.merged_events(state.source_slots(trace))
    told = {"default": "harmonic" if rules.value == values.HARMONIC else "freshness"}
    run = CalendarRun(
        trace, columns, hosts, rules, slots, events, None, 0.0, objectives=HostObjectives(told)
    )
    crawled = np.empty(slots.size, np.int64)
    for first in range(0, slots.size, STRETCH):
        stop = min(first + STRETCH, slots.size)
        run.fill(first, stop, crawled[first:stop])
    assert run.work["uncertain_picks"] == 0
    return crawled


def knowing(trace: Trace) -> tuple[state.Columns, state.Hosts]:
    columns, hosts = state.new_columns(trace), state.new_hosts(trace)
    known = trace_parameters(trace)
    columns.pages["rate"], columns.pages["kappa"] = known.alpha, known.kappa
    columns.pages["gamma"] = known.gamma
    return columns, hosts


@pytest.mark.slow(2)
@pytest.mark.parametrize(("value", "count"), [(values.EXACT, 2000), (values.HARMONIC, 600)])
def test_scheduler_and_lab_pick_the_same_pages(value: int, count: int) -> None:
    trace = limited_trace(count, 20.0)
    slots = Budget.constant(103.0).slot_times(trace.days)
    rules = Rules(value, 1.0, state.KNOWN, True, 0.0)
    picked = calendar_picks(trace, slots, rules)

    # The lab follows the scheduler's picks, and says what it would have picked at each.
    columns, hosts = knowing(trace)
    pages, lists, event = columns.pages, new_lists(len(trace)), 0
    days, rows, kinds = trace.merged_events(state.source_slots(trace))
    same = 0
    for slot, now in enumerate(slots):
        first = slot - slot % STRETCH
        renew_lists(pages, hosts.limit, rules, lists, slots[first : first + STRETCH], slot - first)
        begin = event
        event = take_events(columns, hosts, rules, days, rows, kinds, begin, now)
        for row in rows[begin:event][kinds[begin:event] >= SIGNAL]:
            admit(pages[row], row, rules, lists)
        ours, theirs = select(pages, hosts, rules, lists, now), picked[slot]
        same += int(ours == theirs)
        assert value_of(pages[theirs], rules, now) == pytest.approx(
            value_of(pages[ours], rules, now), rel=ROUNDING
        ), f"slot {slot}"
        host = pages[theirs]["host"]
        assert free_tokens(hosts.limit, hosts.tokens, hosts.filled, host, now) > 1.0 - 1e-9
        take_token(hosts, host, now)
        learn_from_crawl(columns, state.KNOWN, theirs, now)
        admit(pages[theirs], theirs, rules, lists)
    assert same > 0.99 * slots.size
    allowed = trace.host_limit[:3] * trace.days
    limited = np.bincount(trace.host[picked], minlength=40)[:3]
    assert (limited <= allowed + 2.0).all()
    assert limited.sum() > 0.9 * allowed.sum()


@pytest.mark.slow(5)
@pytest.mark.long
def test_ticks_lose_next_to_nothing() -> None:
    trace, budget = paper_trace(pages=500, days=40.0), Budget.constant(100.0)
    slots = budget.slot_times(trace.days)
    by_tick = run_by_value(trace, slots, POLICY, trace_parameters(trace)).crawled
    rules = Rules(values.EXACT, 1.0, state.KNOWN, True, 0.0)
    by_slot = calendar_picks(trace, slots, rules)
    assert (by_tick != by_slot).any()
    even = np.bincount(by_slot, minlength=500)
    assert np.abs(np.bincount(by_tick, minlength=500) - even).sum() < 0.05 * slots.size


def test_a_signal_in_the_middle_of_a_tick_is_heeded_at_once() -> None:
    trace = hand_made([], pages=50, days=20.0)
    days = np.sort(np.random.default_rng(3).random(40)) * 19.0 + 0.5
    trace = replace(trace, signal_days=days, signal_pages=np.arange(40) % 8)
    known = trace_parameters(trace)
    known = type(known).from_columns(
        known.importance, known.alpha, np.full(50, 9.0), np.full(50, 0.1)
    )
    slots = Budget.constant(40.0).slot_times(trace.days)
    crawled = run_by_value(trace, slots, POLICY, known).crawled
    following = np.searchsorted(slots, days)
    alone = np.flatnonzero(np.diff(following, append=slots.size) > 0)
    for signal in alone:
        waiting = int((following == following[signal]).sum())
        first = following[signal]
        assert trace.signal_pages[signal] in crawled[first : first + waiting]


def test_new_pages_are_crawled_when_they_become_known_and_not_before() -> None:
    trace, budget = SCENARIOS["new-pages"](
        paper_trace(pages=200, days=30.0), Budget.constant(20), 1
    )
    slots = budget.slot_times(trace.days)
    crawled = run_by_value(trace, slots, POLICY).crawled
    new = np.flatnonzero((trace.born_days > 0) & (trace.born_days < trace.days - 1.0))
    assert new.size > 20
    firsts = np.array([slots[np.argmax(crawled == page)] for page in new])
    assert (firsts >= trace.born_days[new]).all()
    assert (firsts - trace.born_days[new] < 0.5).all()


def test_a_blocked_budget_leaves_slots_empty() -> None:
    trace = replace(paper_trace(pages=50, days=30.0), host_limit=np.array([1.0]))
    run = run_by_value(trace, Budget.constant(5.0).slot_times(30.0), POLICY)
    assert (run.crawled >= 0).sum() == pytest.approx(30, abs=3)


@pytest.mark.slow(1)
@pytest.mark.parametrize(("pages", "crawls", "days"), [(1, 40.0, 5.0), (12, 4000.0, 1.0)])
@pytest.mark.long
def test_a_budget_of_many_crawls_a_page_is_used_whole(
    pages: int, crawls: float, days: float
) -> None:
    trace, budget = paper_trace(pages=pages, days=days), Budget.constant(crawls)
    ours = replay_policy(trace, budget, "freshet").books
    assert ours.crawls.sum() > 0.99 * crawls * trace.days
    assert ours.staleness <= 1.02 * replay_policy(trace, budget, "uniform").books.staleness


def test_a_budget_of_nothing_is_replayed() -> None:
    trace = paper_trace(pages=10, days=30.0)
    assert run_by_value(trace, np.empty(0), POLICY).crawled.size == 0
    few = np.array([20.0, 29.0])
    assert (run_by_value(trace, few, POLICY).crawled >= 0).all()


def test_the_report_says_who_picked() -> None:
    trace, budget = paper_trace(pages=30, days=10.0), Budget.constant(5.0)
    chosen = {
        name: replay_policy(trace, budget, name).parameters["selection"]
        for name in ("freshet", "freshet-no-signals", "freshet-harmonic", "GREEDY-NCIS")
    }
    assert chosen == {
        "freshet": "calendar",
        "freshet-no-signals": "calendar",
        "freshet-harmonic": "calendar",
        "GREEDY-NCIS": "lab",
    }


def test_the_calendar_is_of_the_exact_value_alone() -> None:
    with pytest.raises(ValueError, match="exact value"):
        ValuePolicy(values.HARMONIC, selection=CALENDAR)
