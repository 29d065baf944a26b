"""Every policy by name: budgets are kept, results repeat, peers follow their documentation."""

from pathlib import Path

import numpy as np
import pytest
from replay_traces import paper_trace

from services.replay import by_schedule
from services.replay.by_rate import run_by_rate
from services.replay.generated import heavy_tailed, make_trace
from services.replay.policies import (
    POLICIES,
    UnknownPolicy,
    policy_names,
    replay_policy,
)
from services.replay.schedules import next_visit, queue_days
from services.replay.slots import Budget
from services.replay.trace import complete_pages
from shared.policy.lambdacrawl.costs import binary_cost, harmonic_cost
from shared.policy.lambdacrawl.harmonic import lambda_crawl

BUDGET = Budget.constant(10.0)


def is_tuned(name: str) -> bool:
    policy = POLICIES[name]
    return isinstance(policy, by_schedule.SchedulePolicy) and bool(policy.grid)


@pytest.mark.parametrize("name", [n for n in POLICIES if not is_tuned(n)])
def test_every_policy_keeps_the_budget_and_repeats_itself(name: str) -> None:
    trace = paper_trace(pages=30, days=25.0, recall=(4.0, 4.0))
    first = replay_policy(trace, BUDGET, name, seed=3)
    again = replay_policy(trace, BUDGET, name, seed=3)
    assert first.crawled.tolist() == again.crawled.tolist()
    assert first.crawled.size == 250
    assert 0.0 < first.books.staleness < 1.0
    assert first.parameters


def test_names_are_taken_in_any_case_and_bad_ones_refused() -> None:
    assert policy_names("greedy, Freshet,bllce,greedy") == ["GREEDY", "freshet", "BLLCε"]
    assert policy_names("all") == list(POLICIES)
    for bad in ("freshness", "", " , "):
        with pytest.raises(UnknownPolicy, match="choose all"):
            policy_names(bad)


def test_no_policy_is_counted_twice() -> None:
    names = list(POLICIES)
    alike = [(a, b) for a in names for b in names if a < b and POLICIES[a] == POLICIES[b]]
    assert alike == []
    assert policy_names("freshet-smoothed") == ["GREEDY-NCIS"]


def test_the_results_say_how_many_policies_there_are() -> None:
    results = Path(by_schedule.__file__).with_name("results") / "README.md"
    assert f"`--policy all` compares {len(POLICIES)}, " in results.read_text()


def test_nutch_stretches_shrinks_and_synchronises() -> None:
    rng = np.random.default_rng(0)
    nutch = by_schedule.NUTCH
    interval, _, due = next_visit(nutch, 10.0, 4, 100.0, 100.0, True, rng)
    assert (interval, due) == pytest.approx((8.0, 108.0))
    interval, _, due = next_visit(nutch, 10.0, 4, 90.0, 100.0, False, rng)
    assert (interval, due) == pytest.approx((14.0, 100.0 - 0.3 * 10.0 + 14.0))
    interval, _, _ = next_visit(nutch, 10.0, 4, 0.0, 100.0, False, rng)
    assert interval == pytest.approx(100.0)


def test_stormcrawler_keeps_between_an_hour_and_two_weeks() -> None:
    rng = np.random.default_rng(0)
    storm = by_schedule.STORMCRAWLER
    assert next_visit(storm, 1.0, 4, 0.0, 5.0, False, rng)[0] == pytest.approx(1.5)
    assert next_visit(storm, 13.0, 4, 0.0, 5.0, False, rng)[0] == pytest.approx(14.0)
    assert next_visit(storm, 1.0, 4, 5.0, 5.0, True, rng)[0] == pytest.approx(0.5 + 0.5 / 24)


def test_software_heritage_doubles_the_days_of_quiet_pages() -> None:
    assert [queue_days(offset) for offset in range(8)] == [1, 1, 2, 2, 2, 8, 16, 32]


def test_uniform_crawls_every_page_equally_often() -> None:
    trace = paper_trace(pages=30, days=60.0)
    crawls = replay_policy(trace, BUDGET, "uniform").books.crawls
    assert crawls.max() - crawls.min() <= 1


def test_lambdacrawl_in_slots_costs_what_its_formulas_say() -> None:
    rng = np.random.default_rng(4)
    pages = heavy_tailed(300, 0.3, rng)
    trace = make_trace(pages, 400.0, rng)
    budget = Budget.constant(60.0)
    books = replay_policy(trace, budget, "LC", seed=2).books
    complete = complete_pages(pages)
    rates = lambda_crawl(pages.importance, pages.change_rate, complete, 60.0).rates
    wanted = harmonic_cost(pages.importance, pages.change_rate, rates, complete) / 300
    assert books.harmonic_cost == pytest.approx(wanted, rel=0.06)
    wanted = binary_cost(pages.importance, pages.change_rate, rates, complete) / 300
    assert books.binary_cost == pytest.approx(wanted, rel=0.06)


def test_learned_rates_are_solved_again_every_day_of_however_long_a_trace() -> None:
    trace = paper_trace(pages=40, days=80.0)
    policy = POLICIES["LLC"]
    heard: list[tuple[float, np.ndarray]] = []
    run_by_rate(
        trace,
        BUDGET.slot_times(trace.days),
        policy,
        0,
        told=lambda day, rates: heard.append((day, rates)),
    )
    assert [day for day, _ in heard] == list(range(80))
    assert policy.parameters()["epoch_days"] == 1.0
    assert not np.allclose(heard[0][1], heard[-1][1])
    assert all(rates.sum() == pytest.approx(10.0) for _, rates in heard)


@pytest.mark.slow(1)
def test_the_harmonic_value_costs_less_than_lambdacrawl() -> None:
    rng = np.random.default_rng(3)
    for complete, bound in ((0.0, 0.80), (1.0, 0.86)):
        trace = make_trace(heavy_tailed(400, complete, rng), 60.0, rng)
        budget = Budget.constant(80.0)
        ours = replay_policy(trace, budget, "freshet-harmonic", oracle=True).books
        theirs = replay_policy(trace, budget, "LC", seed=1).books
        assert ours.harmonic_cost <= bound * theirs.harmonic_cost
