"""Signals as they come elsewhere: late, read by polls, of some hosts, none; and what follows."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_traces import hand_made, paper_trace

from services.replay import as_they_come
from services.replay.as_they_come import AS_THEY_COME, HALF, AsTheyCome, compare_as_they_come
from services.replay.by_polls import sources_of
from services.replay.fixed_polls import poll_days, polled_every
from services.replay.policies import replay_policy
from services.replay.scenarios import SCENARIOS
from services.replay.slots import Budget
from services.replay.trace import Trace

BUDGET = Budget.constant(8.0)


def of_hosts(pages: int = 40, hosts: int = 6, days: float = 40.0) -> Trace:
    trace = paper_trace(pages=pages, days=days, recall=(4.0, 1.0))
    return replace(
        trace,
        host=np.arange(pages) % hosts,
        host_names=tuple(f"h{number}.example" for number in range(hosts)),
        site=np.zeros(hosts, np.int64),
        host_limit=np.full(hosts, np.inf),
        known=None,
    )


@pytest.mark.parametrize(
    ("name", "days"), [("hour-late", 1 / 24), ("six-hours-late", 0.25), ("day-late", 1.0)]
)
def test_every_signal_comes_so_much_later(name: str, days: float) -> None:
    trace = of_hosts()
    bent, _ = SCENARIOS[name](trace, BUDGET, 0)
    in_time = trace.signal_days + days <= trace.days
    assert bent.signal_days == pytest.approx(trace.signal_days[in_time] + days)
    assert bent.signal_pages.tolist() == trace.signal_pages[in_time].tolist()
    assert bent.change_days is trace.change_days


def test_half_of_the_hosts_send_nothing_and_the_others_all() -> None:
    trace = of_hosts()
    hosts = trace.host[trace.signal_pages]
    silent = set()
    for seed in range(4):
        bent, _ = SCENARIOS["half-the-hosts"](trace, BUDGET, seed)
        heard = np.unique(bent.host[bent.signal_pages])
        assert heard.size == 3
        assert bent.signal_days.size == np.isin(hosts, heard).sum()
        silent.add(tuple(heard.tolist()))
    assert len(silent) > 1


def test_without_signals_nobody_differs_from_those_who_do_not_listen() -> None:
    trace = of_hosts()
    bent, _ = SCENARIOS["no-signals"](trace, BUDGET, 0)
    assert bent.signal_days.size == 0
    heard, deaf = (
        replay_policy(one, BUDGET, name).crawled.tolist()
        for one, name in ((bent, "freshet"), (trace, "freshet-no-signals"))
    )
    assert heard == deaf


def test_old_copies_are_stale_when_crawls_begin() -> None:
    trace = of_hosts()
    bent, budget = SCENARIOS["old-copies"](trace, Budget(((0.0, 8.0), (30.0, 4.0))), 0)
    start = trace.days / 4
    assert budget.steps == ((0.0, 0.0), (start, 8.0), (30.0, 4.0))
    assert (bent.born_days < start).all()
    assert bent.held.all()
    assert bent.judged_from == start
    assert (bent.signal_days > start).all()
    found = replay_policy(bent, budget, "freshet").books
    # Some pages have changed since they were copied.
    assert found.series_freshness[0] < 0.7
    assert found.series_freshness[-1] > found.series_freshness[0]
    assert budget.slot_times(trace.days).min() > start


def test_all_pages_are_equally_important() -> None:
    bent, _ = SCENARIOS["importance-one"](of_hosts(), BUDGET, 0)
    assert (bent.importance == 1.0).all()


def test_a_fixed_poll_takes_a_slot_and_shows_what_was_sent_since() -> None:
    trace = of_hosts()
    slots = BUDGET.slot_times(trace.days)
    source = sources_of(trace, by_host=True)
    found = polled_every(trace, slots, source, 5.0)
    assert found.slot_days.size + found.polls == slots.size
    assert found.polls == 6 * 8
    assert (np.diff(found.trace.signal_days) >= 0).all()
    late = found.trace.signal_days - found.about_days
    assert (late >= 0).all()
    assert late.max() <= 5.5
    for read in np.unique(found.trace.signal_days):
        shown = found.trace.signal_days == read
        pages = found.trace.signal_pages[shown]
        assert np.unique(pages).size == pages.size
        [host] = set(trace.host[pages].tolist())
        for page, about in zip(pages, found.about_days[shown], strict=True):
            mine = trace.signal_days[(trace.signal_pages == page) & (trace.signal_days <= read)]
            assert mine.max() == about
        assert host in range(6)


def test_polls_take_their_share_of_the_budget() -> None:
    trace = of_hosts(days=200.0)
    slots = BUDGET.slot_times(trace.days)
    source = sources_of(trace, by_host=True)
    for share in (0.1, 0.4):
        days = poll_days(trace, slots, source, share)
        polls = polled_every(trace, slots, source, days).polls
        assert polls == pytest.approx(share * slots.size, rel=0.05)


@pytest.mark.long
@pytest.mark.slow(20)
def test_policies_are_compared_under_every_scenario() -> None:
    trace = of_hosts(pages=24, hosts=2, days=25.0)
    told: list[tuple[str, str]] = []
    names = ["freshet", "uniform", "software-heritage-lag"]
    found = compare_as_they_come(
        trace, BUDGET, names, told=lambda scenario, policy: told.append((scenario, policy))
    )
    assert list(dict.fromkeys(scenario for scenario, _ in told)) == list(AS_THEY_COME)
    stale = {(r["scenario"], r["draw"], r["policy"]): r["staleness"] for r in found.rows}
    assert len(stale) == (len(AS_THEY_COME) - 1 + as_they_come.DRAWS) * len(names)
    # Who listens to nobody does not care how signals come.
    same = [name for name in AS_THEY_COME if name not in ("old-copies", "importance-one")]
    assert len({stale[name, 0, "uniform"] for name in same}) == 1
    by_lag = {name: stale[name, 0, "software-heritage-lag"] for name in same}
    assert by_lag["as-recorded"] < by_lag["polled"] < by_lag["no-signals"]
    ours = {name: stale[name, 0, "freshet"] for name in same}
    assert ours["as-recorded"] < ours["day-late"] < ours["no-signals"]
    report = found.report()
    assert report["trace"] == trace.digest()
    assert [row["policy"] for row in report["summary"]] == names[1:]


def test_the_middle_is_of_scenarios_and_the_range_of_all_rows() -> None:
    def row(scenario: str, draw: int, policy: str, times: float) -> dict[str, object]:
        return {"scenario": scenario, "draw": draw, "policy": policy, "times": times}

    rows = [row("as-recorded", 0, "freshet", 1.0)]
    rows += [row("as-recorded", 0, "peer", 30.0), row("no-signals", 0, "peer", 2.0)]
    rows += [row(HALF, draw, "peer", times) for draw, times in enumerate([1.5, 9.0, 40.0])]
    [summary] = AsTheyCome(rows, {}).summary()
    assert summary == {"policy": "peer", "middle": 9.0, "least": 1.5, "most": 40.0}


def test_who_is_never_stale_is_compared_with_nobody() -> None:
    rows = [
        {"scenario": name, "draw": 0, "policy": policy, "staleness": staleness}
        for name, policy, staleness in (
            ("as-recorded", "freshet", 0.0),
            ("as-recorded", "nutch", 0.1),
            ("polled", "freshet", 0.1),
            ("polled", "nutch", 0.3),
        )
    ]
    rows = as_they_come.compared(rows)
    assert [row["times"] for row in rows] == [None, None, 1.0, pytest.approx(3.0)]
    [other] = AsTheyCome(rows, {}).summary()
    assert other == {"policy": "nutch"} | dict.fromkeys(
        ("middle", "least", "most"), pytest.approx(3.0)
    )
    assert AsTheyCome(rows[:2], {}).summary() == []


def test_a_trace_in_which_nothing_happens_is_compared() -> None:
    trace = hand_made([], days=4.0)
    found = compare_as_they_come(trace, BUDGET, ("freshet", "nutch"), scenarios=("as-recorded",))
    assert [row["staleness"] for row in found.rows] == [0.0, 0.0]
    assert found.summary() == []


def test_a_budget_without_a_crawl_is_refused() -> None:
    with pytest.raises(ValueError, match="no crawl"):
        compare_as_they_come(of_hosts(), Budget.constant(0.01), ("freshet",))


def test_policies_that_cannot_be_told_of_polls_are_refused() -> None:
    with pytest.raises(ValueError, match="GREEDY: as signals come"):
        compare_as_they_come(of_hosts(), BUDGET, ["freshet", "GREEDY"])


def test_a_trace_is_named_by_what_happens_in_it() -> None:
    trace = hand_made([(1.0, 0), (2.0, 1)])
    assert trace.digest() == hand_made([(1.0, 0), (2.0, 1)]).digest()
    assert trace.digest() != hand_made([(1.0, 0), (2.1, 1)]).digest()
    for other in (
        {"born_days": trace.born_days + 1.0},
        {"held": ~trace.held},
        {"host": trace.host[::-1] + 1},
        {"host_limit": np.full_like(trace.host_limit, 9.0)},
        {"request_days": np.array([1.0]), "request_pages": np.array([0])},
        {"judged_from": 1.0},
    ):
        assert trace.digest() != replace(trace, **other).digest()


def test_the_headline_is_the_middle_of_the_table_that_the_results_have() -> None:
    root = Path(as_they_come.__file__).parents[2]
    lines = (root / "services/replay/results/README.md").read_text().splitlines()

    def cells(name: str) -> list[list[float]]:
        [line] = [line for line in lines if line.startswith(f"| {name} | ")]
        return [[float(x) for x in re.findall(r"[0-9.]+", cell)] for cell in line.split("|")[4:7]]

    rows = [cells(f"`{name}`") for name in AS_THEY_COME]
    told = cells("the middle, and the range")
    for peer in range(3):
        times = [row[peer] for row in rows]
        middle = np.median([np.median(draws) for draws in times])
        assert told[peer] == [middle, min(map(min, times)), max(map(max, times))]
    assert f"the copy was stale {told[0][0]:g} times\n" in (root / "README.md").read_text()
    decide = (root / "docs/decide/index.md").read_text()
    assert f"| {told[0][0]:g} in the middle of nine scenarios" in decide
    assert (
        f"| {told[1][0]:.1f} in the middle; from {told[1][1]:.1f} to {told[1][2]:.1f} |" in decide
    )
