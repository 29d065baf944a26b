"""Replays in which signals are known by polls alone, and polls cost crawls."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import paper_trace

from services.replay import by_polls
from services.replay.by_polls import IDLE, ByValue, Fixed, PolledRun, sources_of
from services.replay.polled import BY_VALUE, compare_rhythms
from services.replay.slots import Budget
from shared.policy.polls import PollRecord, signal_worth

BUDGET = Budget.constant(12.0)


@pytest.fixture(scope="module")
def trace():
    """Two hosts of a site: the pages of the second are worth, and signal, next to nothing."""
    made = paper_trace(pages=60, recall=(0.9, 0.9))
    host = (np.arange(60) >= 30).astype(np.int64)
    return replace(
        made,
        host=host,
        host_names=("busy.example", "quiet.example"),
        site=np.zeros(2, np.int64),
        host_limit=np.full(2, np.inf),
        importance=np.where(host == 0, made.importance, 1e-3 * made.importance),
    )


def run(trace, rhythm, *, by_host=True):
    slots = BUDGET.slot_times(trace.days)
    made = PolledRun(trace, slots, sources_of(trace, by_host=by_host), rhythm)
    return made, slots, made.run()


@pytest.mark.slow(0.5)
def test_a_poll_takes_the_slot_in_which_it_is_due(trace):
    made, slots, crawled = run(trace, Fixed(5.0))
    assert made.polls.tolist() == [12, 12]
    assert (crawled == IDLE).sum() == 24
    polled = slots[crawled == IDLE]
    assert polled[0] == slots[np.searchsorted(slots, 1.0)]
    assert np.diff(polled[::2]) == pytest.approx(5.0, abs=0.2)
    one, _, crawled = run(trace, Fixed(5.0), by_host=False)
    assert one.polls.tolist() == [12]
    assert (crawled == IDLE).sum() == 12


@pytest.mark.slow(1)
def test_what_is_not_polled_is_not_known(trace):
    never = Fixed(1e6)
    _, _, crawled = run(trace, never)
    shuffled = replace(trace, signal_pages=trace.signal_pages[::-1].copy())
    late = trace.signal_days > 2.0
    fewer = replace(
        trace,
        signal_days=trace.signal_days[~late],
        signal_pages=trace.signal_pages[~late],
        signal_sources=trace.signal_sources[~late],
    )
    np.testing.assert_array_equal(run(fewer, never)[2], crawled)
    often = run(trace, Fixed(1.0))[2]
    assert not np.array_equal(run(shuffled, Fixed(1.0))[2], often)


def test_a_poll_shows_the_last_signal_of_each_page(trace, monkeypatch):
    told = []
    made = PolledRun(
        trace, BUDGET.slot_times(trace.days), sources_of(trace, by_host=False), Fixed(7.0)
    )
    monkeypatch.setattr(made._crawls, "told", lambda *news: told.append(news))
    made.run()
    before = 0.0
    for pages, days, _ in told:
        assert np.unique(pages).size == pages.size
        sent = (trace.signal_days > before) & (trace.signal_days <= days.max())
        assert set(pages) <= set(trace.signal_pages[sent])
        for page, day in zip(pages, days, strict=True):
            mine = sent & (trace.signal_pages == page)
            assert trace.signal_days[mine].max() == day
        before = days.max()
    assert sum(pages.size for pages, _, _ in told) > 100


def test_by_value_the_source_whose_pages_matter_is_polled_more_often(trace):
    made, _, _ = run(trace, ByValue())
    assert made.polls[0] > 2 * made.polls[1] > 0


def test_signals_are_worth_what_crawls_are_bought_for_now_and_not_in_the_long_run(
    trace, monkeypatch
):
    """Copies are all fresh at first: pages are crawled that in the long run are not worth it."""
    prices, made = (
        [],
        PolledRun(
            trace, BUDGET.slot_times(trace.days), sources_of(trace, by_host=True), Fixed(2.0)
        ),
    )

    def worth(importance, alpha, kappa, gamma, price):
        prices.append((price, made.price, made.multiplier))
        return signal_worth(importance, alpha, kappa, gamma, price)

    monkeypatch.setattr(by_polls, "signal_worth", worth)
    made.run()
    assert len(prices) > 40
    assert all(price == now <= in_the_long_run for price, now, in_the_long_run in prices)
    assert prices[5][0] < 0.5 * prices[5][2]


def test_without_a_record_or_a_price_a_source_is_polled_daily():
    assert ByValue().interval(PollRecord(), 1.0) == 1.0
    assert ByValue().interval(PollRecord(1.0, 1.0, 1.0), 0.0) == 1.0


@pytest.mark.slow(1)
def test_rhythms_are_compared_at_one_budget(trace):
    found = compare_rhythms(trace, BUDGET, [1.0, 30.0], by_host=True)
    report = found.report()
    assert {row["rhythm"] for row in report["rhythms"]} == {
        BY_VALUE,
        "every 1 days",
        "every 30 days",
    }
    slots = BUDGET.slot_times(trace.days).size
    assert all(row["polls"] + row["crawls"] <= slots for row in report["rhythms"])
    assert report["sources"] == 2
    best = min(row["staleness"] for row in report["rhythms"] if row["rhythm"] != BY_VALUE)
    [by_value] = [row["staleness"] for row in report["rhythms"] if row["rhythm"] == BY_VALUE]
    assert report["share_of_best_fixed"] == by_value / best
