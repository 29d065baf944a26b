"""The page and its data: complete, correct, and loading nothing from anywhere else."""

import re

import msgspec
import pytest

from services.coordinator.core import Coordination, Moment
from services.coordinator.picture import HISTORY_SECONDS, WEB, Picture, Sample, ShardState, State
from shared.contracts.messages import Bandwidth, DemandCurve

NOW = Moment(clock=1_700_000_000.0, wall=100.0)
GRID = [0.01, 0.1, 1.0, 10.0]


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
    made = Coordination(silent_after_seconds=5.0, lead_seconds=0.3, shards=8)
    made.receive_bandwidth(Bandwidth(7.0))
    made.receive_demand(report(0, 3.0, 0.0, 2.0), 100.0, NOW)
    made.receive_demand(report(1, 1.0, 0.5, 1.0), 98.0, NOW)
    made.receive_demand(report(2, 1.0, 0.5, 9.0), 90.0, NOW)
    return made


def test_the_state_adds_up_what_the_live_shards_report(coordination):
    message = coordination.next(NOW)
    coordination.published(message, NOW)
    state = Picture(coordination).state(NOW, 5.0, message)
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
    assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state


def test_ten_minutes_are_remembered(coordination):
    picture = Picture(coordination)
    for second in range(HISTORY_SECONDS + 10):
        picture.sample(NOW, float(second))
    history = picture.state(NOW, 0.0, None).history
    assert len(history) == HISTORY_SECONDS
    assert (history[0].at, history[-1].at) == (10.0, HISTORY_SECONDS + 9.0)


def test_it_says_what_keeps_the_system_from_crawling():
    empty = Coordination(silent_after_seconds=5.0, lead_seconds=0.3, shards=8)
    assert "freshet bandwidth set" in Picture(empty).notice(NOW)
    empty.receive_bandwidth(Bandwidth(1.0))
    assert "schedulers" in Picture(empty).notice(NOW)


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
