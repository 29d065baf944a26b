"""The compiled loop picks what a full scan with the library's own columns picks."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import hand_made, paper_trace

from services.replay import columns, values
from services.replay.books import settle
from services.replay.by_value import ValuePolicy, run_by_value
from services.replay.scenarios import SCENARIOS
from services.replay.slots import Budget
from services.replay.trace import SIGNAL, Trace, trace_parameters
from shared.policy.approximations import (
    g_ncis_approximation,
    greedy_cis_plus_value,
    greedy_cis_value,
    greedy_value,
)
from shared.policy.harmonic import harmonic_value
from shared.policy.value import crawl_value

BUDGET = Budget.constant(12.0)


def full_scan(trace: Trace, value: object, slots: np.ndarray) -> np.ndarray:
    """The greatest value at every slot, all pages looked at, by the library's column functions."""
    known = trace_parameters(trace)
    parameters = (known.importance, known.alpha, known.kappa, known.gamma)
    days, pages, kinds = trace.merged_events()
    last, signals, event = np.zeros(len(trace)), np.zeros(len(trace)), 0
    picked = np.empty(slots.size, np.int64)
    for slot, now in enumerate(slots):
        while event < days.size and days[event] <= now:
            signals[pages[event]] += kinds[event] == SIGNAL
            event += 1
        worth = value(*parameters, now - last, signals)
        picked[slot] = int(np.argmax(worth))
        last[picked[slot]], signals[picked[slot]] = now, 0.0
    return picked


@pytest.mark.parametrize(
    ("kind", "terms", "value"),
    [
        (values.EXACT, 1, crawl_value),
        (values.NO_SIGNALS, 1, lambda *page: greedy_value(*page[:-1])),
        (values.TRUSTING, 1, greedy_cis_value),
        (values.SELECTIVE, 1, greedy_cis_plus_value),
        (values.FIRST_TERMS, 2, lambda *page: g_ncis_approximation(*page, terms=2)),
        (values.HARMONIC, 1, harmonic_value),
    ],
)
def test_choices_equal_a_full_scan(kind: int, terms: int, value: object) -> None:
    trace = paper_trace(pages=80, days=8.0, recall=(4.0, 4.0))
    slots = BUDGET.slot_times(trace.days)
    policy = ValuePolicy(kind, terms=terms)
    run = run_by_value(trace, slots, policy, trace_parameters(trace))
    assert run.crawled.tolist() == full_scan(trace, value, slots).tolist()


@pytest.mark.parametrize(
    ("kind", "column"), [(values.EXACT, crawl_value), (values.HARMONIC, harmonic_value)]
)
def test_parts_of_signals_count(kind: int, column: object) -> None:
    def unit(signals: float) -> float:
        return values.unit_value(kind, 1.0, 0.1, 0.5, 0.3, 4.0, signals)

    for whole in (1.0, 2.0, 3.0):
        wanted = column(1.0, 0.1, 0.5, 0.3, 4.0, whole).item()
        assert unit(whole) == pytest.approx(wanted)
        assert unit(whole - 1e-12) == pytest.approx(wanted)
        assert unit(whole - 1e-6) == pytest.approx(wanted, rel=1e-5)
        assert unit(whole - 1.0) < unit(whole - 0.5) < unit(whole)


def test_many_pages_are_listed_without_a_loss() -> None:
    trace = paper_trace(pages=2000, days=5.0)
    slots = Budget.constant(40.0).slot_times(trace.days)
    run = run_by_value(trace, slots, ValuePolicy(values.EXACT), trace_parameters(trace))
    assert run.crawled.tolist() == full_scan(trace, crawl_value, slots).tolist()
    assert run.work["full_scans"] < 0.2 * slots.size


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("learner", [columns.PRODUCTION, columns.SMOOTHED])
def test_learning_is_better_than_round_robin(learner: int) -> None:
    trace = paper_trace(pages=120, days=150.0)
    slots = BUDGET.slot_times(trace.days)
    run = run_by_value(trace, slots, ValuePolicy(values.EXACT, learner))
    learned = settle(trace, slots, run.crawled)
    even = settle(trace, slots, np.arange(slots.size) % len(trace))
    oracle = run_by_value(trace, slots, ValuePolicy(values.EXACT), trace_parameters(trace))
    best = settle(trace, slots, oracle.crawled)
    assert best.staleness < learned.staleness < even.staleness
    if run.estimator is not None:
        records = run.estimator.shard.rings.seen[: len(trace)]
        alpha = run.estimator.shard.pages["unsignalled_change_rate"][records > 0]
    else:
        records, alpha = run.columns.records, run.columns.alpha
    assert (records > 0).any()
    assert np.isfinite(alpha).all()


def test_a_policy_never_looks_at_changes_it_has_not_crawled() -> None:
    trace = paper_trace(pages=80, days=30.0, recall=None)
    slots = BUDGET.slot_times(trace.days)
    policy = ValuePolicy(values.EXACT, columns.PRODUCTION)
    before = run_by_value(trace, slots, policy).crawled
    first = int(before[0])
    # Changes of all pages but one before their first crawls' ends: the first choice stays.
    other = replace(trace, change_pages=(trace.change_pages + 1) % len(trace))
    assert int(run_by_value(other, slots, policy).crawled[0]) == first


def test_pages_without_a_copy_come_first_and_by_importance() -> None:
    trace = replace(hand_made([], pages=4), held=np.array([True, False, True, False]))
    slots = Budget.constant(1.0).slot_times(trace.days)
    crawled = run_by_value(trace, slots, ValuePolicy(values.EXACT)).crawled
    assert crawled[:2].tolist() == [3, 1]


def test_a_limited_host_never_holds_up_the_others() -> None:
    trace, budget = SCENARIOS["host-limits"](paper_trace(pages=60), BUDGET, 0)
    slots = budget.slot_times(trace.days)
    run = run_by_value(trace, slots, ValuePolicy(values.EXACT), trace_parameters(trace))
    crawls = int((run.crawled >= 0).sum())
    assert crawls == pytest.approx(trace.host_limit[0] * trace.days, abs=3)
    two = replace(
        trace,
        host=np.arange(60) % 2,
        site=np.arange(2),
        host_names=("a", "b"),
        host_limit=np.array([2.0, np.inf]),
    )
    run = run_by_value(two, slots, ValuePolicy(values.EXACT), trace_parameters(two))
    assert (run.crawled >= 0).all()
    limited = int((two.host[run.crawled] == 0).sum())
    assert limited == pytest.approx(2.0 * two.days, abs=3)


def test_delayed_signals_soon_after_a_crawl_are_not_counted() -> None:
    trace = replace(
        hand_made([], pages=1),
        signal_days=np.array([1.1, 1.9]),
        signal_pages=np.zeros(2, np.int64),
    )
    slots = np.array([1.0])
    for delay, counted in ((0.0, 2.0), (0.5, 1.0), (2.0, 0.0)):
        policy = ValuePolicy(values.EXACT, signal_delay_days=delay)
        run = run_by_value(trace, np.append(slots, 10.0)[:1], policy)
        assert run.crawled.tolist() == [0]
        later = run_by_value(trace, np.array([1.0, 10.0]), policy)
        assert later.columns.ring_signals[0, 1, 0] == counted
