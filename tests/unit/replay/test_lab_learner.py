"""The lab's own learner: how often signals come, and which of them are one."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import hand_made

from services.replay import columns as state
from services.replay.by_value import ValuePolicy, run_by_value
from services.replay.learning import learn_from_crawl, take_signal
from services.replay.policies import POLICIES
from services.replay.trace import Trace
from shared.policy.estimation.smoothed import signal_rates

LEARNERS = [
    name
    for name, policy in POLICIES.items()
    if isinstance(policy, ValuePolicy) and policy.learner == state.SMOOTHED and policy.uses_signals
]


def signalled(days: list[float], sources: list[int] | None = None) -> Trace:
    """Two pages, of which the first is signalled on these days."""
    trace = hand_made([(0.1, 0)], days=400.0)
    return replace(
        trace,
        signal_days=np.array(days),
        signal_pages=np.zeros(len(days), np.int64),
        signal_sources=np.array(sources or [0] * len(days)),
    )


def test_a_crawl_counts_the_days_without_a_signal() -> None:
    trace = signalled([0.1])
    columns, hosts = state.new_columns(trace), state.new_hosts(trace)
    take_signal(columns, hosts, state.SMOOTHED, 0.0, 0, 0, 0.1)
    assert columns.pages["gamma"][0] == pytest.approx(2.5)
    learn_from_crawl(columns, state.SMOOTHED, 0, 100.0)
    learn_from_crawl(columns, state.SMOOTHED, 1, 100.0)
    assert columns.pages["gamma"].tolist() == signal_rates([1, 0], 100.0).tolist()


def test_a_page_without_copy_has_its_signals_counted_at_its_first_crawl() -> None:
    trace = replace(signalled([0.1]), held=np.zeros(2, np.bool_))
    columns, hosts = state.new_columns(trace), state.new_hosts(trace)
    take_signal(columns, hosts, state.SMOOTHED, 0.0, 0, 0, 0.1)
    learn_from_crawl(columns, state.SMOOTHED, 0, 9.0)
    assert columns.pages["gamma"][0] == signal_rates(1, 9.0)


@pytest.mark.parametrize("name", LEARNERS)
def test_one_signal_does_not_stand_for_many_where_no_crawl_comes(name: str) -> None:
    # All crawls are of the other page.
    trace = replace(signalled([0.1, 30.0]), importance=np.array([1.0, 1e6]))
    policy = POLICIES[name]
    assert isinstance(policy, ValuePolicy)
    policy = replace(policy, signal_delay_days=0.0)
    run = run_by_value(trace, np.array([35.0, 399.0]), policy)
    assert run.crawled.tolist() == [1, 1]
    assert run.columns.pages["gamma"][0] == signal_rates(2, 399.0)


def test_signals_at_one_time_are_one_where_one_source_sent_them() -> None:
    """As `effects` of the estimator has it: late or double is a signal of its own source's."""
    for sources, counted in (([0, 0], 1.0), ([0, 1], 2.0)):
        trace = signalled([1.0, 1.0], sources)
        columns, hosts = state.new_columns(trace), state.new_hosts(trace)
        for slot in sources:
            take_signal(columns, hosts, state.PRODUCTION, 0.0, 0, slot, 1.0)
        assert columns.pages["signals"][0] == counted
