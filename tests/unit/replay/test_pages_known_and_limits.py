"""What pages become known when, and which hosts are at their limits, in replays of every policy."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import hand_made, paper_trace

from services.replay.books import IDLE
from services.replay.by_rate import Facts, RatePolicy, run_by_rate
from services.replay.by_schedule import SchedulePolicy
from services.replay.policies import POLICIES, knows_limits, policy_names, replay_policy
from services.replay.replay import compare
from services.replay.scenarios import SCENARIOS
from services.replay.slots import Budget
from services.replay.trace import Trace, trace_parameters

BUDGET = Budget.constant(10.0)

UNTUNED = [
    name
    for name, policy in POLICIES.items()
    if not isinstance(policy, SchedulePolicy) or not policy.grid
]
BY_RATE = [name for name in POLICIES if not knows_limits(name)]


def growing() -> Trace:
    """Half of the pages become known on the way, and no copy of them is held."""
    trace = paper_trace(pages=60, days=30.0, recall=(4.0, 4.0))
    born = np.where(np.arange(60) % 2 == 1, np.linspace(0.0, 29.0, 60), 0.0)
    return replace(trace, born_days=born, held=born == 0.0, known=None)


@pytest.mark.parametrize("name", UNTUNED)
def test_no_page_is_crawled_before_it_is_known(name: str) -> None:
    trace = growing()
    replayed = replay_policy(trace, BUDGET, name)
    slots = BUDGET.slot_times(trace.days)
    is_crawl = replayed.crawled != IDLE
    assert (trace.born_days[replayed.crawled[is_crawl]] <= slots[is_crawl]).all()
    assert (replayed.books.stale_days >= 0.0).all()


@pytest.mark.parametrize("name", BY_RATE)
def test_no_crawl_is_lost_to_pages_that_are_not_known_yet(name: str) -> None:
    assert (replay_policy(growing(), BUDGET, name).crawled != IDLE).all()


def test_an_oracle_counts_what_happened_since_a_page_was_known() -> None:
    days = np.arange(1.0, 100.0)
    trace = replace(
        hand_made([(day, 0) for day in days], days=100.0), born_days=np.array([90.0, 0.0])
    )
    assert trace_parameters(trace).change_rate[0] == pytest.approx(0.9, abs=0.01)
    # Policies are judged from the tenth day on, and signals of before are lost.
    judged = replace(
        hand_made([(day, 0) for day in days], days=100.0),
        judged_from=10.0,
        signal_days=days[days > 10.0],
        signal_pages=np.zeros(89, np.int64),
        signal_sources=np.zeros(89, np.int64),
    )
    assert trace_parameters(judged).change_rate[0] == pytest.approx(89 / 90, abs=0.01)
    assert trace_parameters(judged).recall[0] > 0.99


def test_rates_are_solved_for_the_budget_of_the_days_that_are_judged() -> None:
    trace, budget = SCENARIOS["old-copies"](paper_trace(days=40.0), Budget.constant(8.0), 0)
    assert budget.mean_rate(trace.days, trace.judged_from) == pytest.approx(8.0)
    heard = []

    def solve(facts: Facts) -> np.ndarray:
        heard.append(facts.bandwidth)
        return np.ones(len(trace))

    run_by_rate(trace, budget.slot_times(trace.days), RatePolicy(solve), 0)
    assert heard == [pytest.approx(8.0)]


@pytest.mark.slow(2)
def test_policies_that_know_no_limits_are_not_compared_where_hosts_have_some() -> None:
    trace, budget = SCENARIOS["host-limits"](paper_trace(pages=60), BUDGET, 0)
    for name in BY_RATE:
        with pytest.raises(ValueError, match=f"{name} knows nothing of host limits"):
            compare(trace, budget, [name])
    limited = policy_names("all", limits=True)
    assert set(limited) == set(POLICIES) - set(BY_RATE)
    for name in set(UNTUNED) & set(limited):
        crawls = (replay_policy(trace, budget, name).crawled != IDLE).sum()
        assert crawls <= trace.host_limit[0] * trace.days + 2, name


def test_what_is_refused_is_refused_before_the_others_are_replayed() -> None:
    trace, budget = SCENARIOS["host-limits"](paper_trace(pages=60), BUDGET, 0)
    begun: list[str] = []
    for names in (["freshet", BY_RATE[0]], ["freshet", "nobody"]):
        with pytest.raises(ValueError, match=r"knows nothing of host limits|no policy 'nobody'"):
            compare(trace, budget, names, told=lambda name, _: begun.append(name))
    assert not begun


@pytest.mark.parametrize("name", BY_RATE)
def test_rates_say_that_there_is_nothing_to_share_out(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: the budget has no crawl within the 60 days"):
        compare(paper_trace(), Budget.constant(0.001), [name])
