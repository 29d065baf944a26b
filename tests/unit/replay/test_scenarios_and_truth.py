"""Scenarios bend a trace as they say, and an oracle matches signals to the changes before them."""

import numpy as np
import pytest
from replay_traces import paper_trace

from services.replay.policies import replay_policy
from services.replay.scenarios import SCENARIOS
from services.replay.slots import Budget
from services.replay.trace import complete_pages, site_of, trace_parameters
from services.replay.truth import matched_counts

BUDGET = Budget.constant(8.0)


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_scenario_gives_a_sound_trace_and_repeats_itself(name: str) -> None:
    trace = paper_trace(pages=40, days=30.0)
    bent, budget = SCENARIOS[name](trace, BUDGET, 5)
    again, _ = SCENARIOS[name](trace, BUDGET, 5)
    assert (np.diff(bent.signal_days) >= 0).all()
    assert (np.diff(bent.change_days) >= 0).all()
    assert bent.signal_days.max(initial=0.0) <= trace.days
    assert bent.signal_pages.tolist() == again.signal_pages.tolist()
    assert 0.0 < replay_policy(bent, budget, "freshet").books.staleness < 1.0


def test_spam_adds_false_signals_to_a_few_pages_only() -> None:
    trace = paper_trace(pages=400, days=30.0)
    bent, _ = SCENARIOS["spam"](trace, BUDGET, 1)
    own = np.bincount(trace.signal_pages, minlength=400)
    now = np.bincount(bent.signal_pages, minlength=400)
    hit = now > own
    assert 5 <= hit.sum() <= 40
    assert (now[hit] >= 10 * own[hit]).all()


def test_signals_are_matched_to_the_oldest_open_change_within_a_day() -> None:
    days = np.array([1.0, 1.5, 1.6, 4.0, 6.0])
    pages = np.zeros(5, np.int64)
    kinds = np.array([0, 0, 1, 1, 1], np.int8)
    signals, true_signals, unsignalled = matched_counts(days, pages, kinds, 1)
    assert (signals[0], true_signals[0], unsignalled[0]) == (3, 1, 1)


def test_the_trace_tells_nearly_what_the_population_was_made_from() -> None:
    from dataclasses import replace

    trace = paper_trace(pages=50, days=400.0, recall=(4.0, 4.0))
    known = trace_parameters(trace)
    found = trace_parameters(replace(trace, known=None))
    assert np.corrcoef(found.change_rate, known.change_rate)[0, 1] > 0.95
    assert found.gamma == pytest.approx(known.gamma, rel=0.4)
    assert not complete_pages(known).any()


def test_sites_pool_subdomains_but_not_addresses() -> None:
    assert site_of("a.b.example:8080") == "b.example"
    assert site_of("192.0.2.7") == "192.0.2.7"
    assert site_of("[::1]:80") == "[::1]:80"
    assert site_of("localhost") == "localhost"
