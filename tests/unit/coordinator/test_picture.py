"""The page and its data: complete, correct, and loading nothing from anywhere else."""

import re

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from services.coordinator import groups
from services.coordinator.core import Coordination, Moment
from services.coordinator.picture import HISTORY_SECONDS, Picture, Sample, ShardState, State
from services.coordinator.web import WEB, files
from shared.contracts.messages import (
    Allotment,
    Bandwidth,
    DemandCurve,
    GroupLimit,
    Multipliers,
    ScheduledRate,
)

NOW = Moment(clock=1_700_000_000.0, wall=100.0)
GRID = [0.01, 0.1, 1.0, 10.0]
METRICS = ("multiplier_value", "multipliers_version_number", "bandwidth_crawls_per_second")


def report(shard, demand, host_limited, achieved):
    return DemandCurve(
        shard=shard,
        instance=f"scheduler-{shard}",
        reported_at=NOW.clock,
        pages=10,
        thresholds=GRID,
        demand=[demand] * 4,
        ripe=[0.0] * 4,
        achieved_crawls_per_second=achieved,
        host_limited_share=host_limited,
        marginal_value=0.0,
    )


@pytest.fixture
def coordination():
    made = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    made.lead(3, "one")
    made.receive_bandwidth(Bandwidth(7.0))
    made.receive_demand(report(0, 3.0, 0.0, 2.0), 100.0, NOW)
    made.receive_demand(report(1, 1.0, 0.5, 1.0), 98.0, NOW)
    made.receive_demand(report(2, 1.0, 0.5, 9.0), 90.0, NOW)
    return made


def test_the_state_adds_up_what_the_live_shards_report(coordination):
    message = coordination.next(NOW)
    coordination.published(message, NOW)
    state = Picture(coordination).state(NOW, 5.0, "one")
    assert state.now.bandwidth == 7.0
    assert state.now.achieved == 3.0
    # 3 of 3 and 1 of 2 asked for get through.
    assert state.now.host_limited == pytest.approx(0.2)
    assert (state.live_shards, state.silent_shards, state.pages) == (2, 1, 30)
    assert [(r.shard, r.silent, r.achieved) for r in state.shards] == [
        (0, False, 2.0),
        (1, False, 1.0),
        (2, True, 0.0),
    ]
    assert [r.seconds_since_report for r in state.shards] == [0.0, 2.0, 10.0]
    assert sum(r.share for r in state.shards) == pytest.approx(1.0)
    assert state.notice is None
    assert (state.leads, state.leader, state.epoch) == (True, "one", 3)
    assert (state.scheduled, state.next_change_at) == (False, None)
    assert state.why == "the first decision; 3 shards report"
    assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state


def test_ten_minutes_are_remembered(coordination):
    picture = Picture(coordination)
    for second in range(HISTORY_SECONDS + 10):
        picture.sample(NOW, float(second))
    history = picture.state(NOW, 0.0, "").history
    assert len(history) == HISTORY_SECONDS
    assert (history[0].at, history[-1].at) == (10.0, HISTORY_SECONDS + 9.0)


def test_the_ratio_of_crawls_to_slots_counts_what_silent_shards_had(coordination):
    coordination.published(coordination.next(NOW), NOW)
    assert Picture(coordination).state(NOW, 5.0, "").now.achieved_ratio == 1.0
    for seconds in (0.5, 2.3, 4.0):
        since = coordination.fleet.shards[0].curve.reported_at
        later = Moment(NOW.clock + seconds, NOW.wall + seconds)
        slots = coordination.timeline.allotted(0, since, later.clock) / (later.clock - since)
        said = report(0, 3.0, 0.0, slots / 2)
        coordination.receive_demand(replace(said, reported_at=later.clock), later.wall, later)
    ratio = Picture(coordination).state(later, 5.0, "").now.achieved_ratio
    # Shard 1 is silent by now, with a quarter of the budget.
    assert ratio == pytest.approx(0.5 * 0.75)
    row = Picture(coordination).state(later, 5.0, "").shards[0]
    assert row.ratio == pytest.approx(0.5)
    assert row.usable == pytest.approx(slots / 2)


def test_what_is_left_of_the_budget_is_said(coordination):
    coordination.published(coordination.next(NOW), NOW)
    for seconds in (0.5, 2.3, 4.0):
        since = coordination.fleet.shards[0].curve.reported_at
        later = Moment(NOW.clock + seconds, NOW.wall + seconds)
        slots = coordination.timeline.allotted(0, since, later.clock) / (later.clock - since)
        said = replace(report(0, 3.0, 0.0, 0.6 * slots), unused_crawls_per_second=0.4 * slots)
        coordination.receive_demand(replace(said, reported_at=later.clock), later.wall, later)
    assert Picture(coordination).state(later, 5.0, "").now.unused == pytest.approx(0.4 * slots)


def test_a_follower_shows_who_leads_and_what_was_said():
    schedule = [ScheduledRate(0, 1.0), ScheduledRate(3600, 2.0)]
    follower = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    follower.receive_bandwidth(Bandwidth(1.0, schedule=schedule))
    said = Multipliers(
        9, NOW.clock, NOW.clock, 0.5, 2.0, 0.0, [Allotment(0, 1.0)], "demand", 4, "two"
    )
    follower.receive_multipliers(said, NOW)
    state = Picture(follower).state(NOW, 5.0, "")
    assert (state.leads, state.leader, state.epoch, state.version) == (False, "two", 4, 9)
    assert state.scheduled
    assert state.next_change_at > NOW.clock
    assert state.now.multiplier == 0.5


def test_metrics_of_one_that_led_before_are_what_the_leader_of_now_has_said(coordination):
    coordination.published(coordination.next(NOW), NOW)
    ended = replace(coordination.last, version=9, multiplier=0.5, epoch=4, leader="two")
    coordination.follow()
    coordination.receive_multipliers(ended, NOW)
    Picture(coordination).sample(NOW, 5.0)
    shown = [REGISTRY.get_sample_value(f"freshet_{name}") for name in METRICS]
    assert shown == [0.5, 9.0, 7.0]


def test_it_says_what_keeps_the_system_from_crawling():
    empty = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    assert "freshet bandwidth set" in Picture(empty).notice(NOW)
    empty.receive_bandwidth(Bandwidth(1.0))
    assert "schedulers" in Picture(empty).notice(NOW)


def test_limits_that_have_no_room_after_a_growth_are_told_of(coordination, monkeypatch):
    monkeypatch.setattr(groups, "most_groups", lambda shards: 5 - shards)
    for name in ("a.example", "b.example", "c.example"):
        coordination.groups.receive(GroupLimit(name, 1.0))
    coordination.published(coordination.next(NOW), NOW)
    notice = Picture(coordination).notice(NOW)
    assert "the limits of 1 do not hold, of c.example" in notice
    coordination.groups.receive(GroupLimit("a.example", None))
    later = Moment(NOW.clock + 5.0, NOW.wall + 1.0)
    coordination.published(coordination.next(later), later)
    assert Picture(coordination).notice(later) is None


def test_the_limit_of_all_addresses_is_shown():
    made = Coordination(5.0, 0.3, group_crawls_per_second=2.5)
    made.lead(1, "coordinator-1")
    made.receive_bandwidth(Bandwidth(1.0))
    made.published(made.next(NOW), NOW)
    shown = Picture(made).state(NOW, 5.0, "").default_groups
    assert (shown.crawls_per_second, shown.divided) == (2.5, 0)


def test_the_page_loads_nothing_from_anywhere_else():
    for file in WEB.iterdir():
        if file.suffix in {".html", ".js", ".css"}:
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", text), file.name


def test_every_element_that_the_script_fills_is_on_the_page():
    script = (WEB / "picture.js").read_text()
    page = (WEB / "index.html").read_text()
    wanted = set(re.findall(r'\$\("([a-z-]+)"\)', script))
    assert wanted == wanted & set(re.findall(r'id="([a-z-]+)"', page))
    assert len(wanted) > 10


def test_the_script_reads_fields_that_the_state_has():
    script = (WEB / "picture.js").read_text().replace('"state.json"', "")
    for owner, kind in (("state", State), ("now", Sample), ("shard", ShardState), ("s", Sample)):
        used = set(re.findall(rf"\b{owner}\.([a-z_]+)\b", script)) - {"at"}
        assert used <= set(kind.__struct_fields__), owner


def test_every_page_leads_to_all_others_in_the_same_words():
    pages = [text for text, content_type in files().values() if content_type == "text/html"]
    navs = {
        re.sub(r' aria-current="page"', "", re.search("<nav.*</nav>", page, re.DOTALL)[0])
        for page in pages
    }
    assert len(pages) == 5
    assert len(navs) == 1
    for page in pages:
        assert page.count("aria-current") == page.count("<h1") == page.count("<main ") == 1
        for field in re.findall(r'<(?:input|select) id="([a-z]+)"', page):
            assert f'<label for="{field}">' in page


def test_nothing_is_put_on_a_page_as_html():
    for script in WEB.glob("*.js"):
        text = script.read_text()
        assert not re.search("innerHTML|outerHTML|insertAdjacentHTML|document.write|eval", text)
