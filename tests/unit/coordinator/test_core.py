"""The coordination over time: who is there, what is published when, numbers that never go back."""

from itertools import pairwise

import pytest

from services.coordinator.allotment import relaxation
from services.coordinator.core import REFRESH_SECONDS, Coordination, Moment
from shared.contracts.codec import BadMessage
from shared.contracts.messages import Bandwidth, DemandCurve
from shared.pacing.slots import SlotTimeline

GRID = [10 ** (k / 8) for k in range(-24, 9)]
START = 1_700_000_000.0


def report(shard, scale=1.0, at=START, **changes):
    values = {
        "shard": shard,
        "instance": "s",
        "reported_at": at,
        "pages": 100,
        "thresholds": GRID,
        "demand": [scale / x**0.5 for x in GRID],
        "ripe": [0.0] * len(GRID),
        "achieved_crawls_per_second": 0.0,
        "host_limited_share": 0.0,
        "marginal_value": 0.0,
    }
    return DemandCurve(**(values | changes))


class Run:
    """A coordination on a clock that the test moves, with shards that report each second."""

    def __init__(self, speed=1.0, origin=START):
        self.speed = speed
        self.origin = origin
        self.wall = 0.0
        self.core = Coordination(silent_after_seconds=5.0, lead_seconds=0.3, shards=64)
        self.reporting = {}
        self.published = []

    @property
    def moment(self):
        return Moment(self.origin + self.speed * self.wall, 1000.0 + self.wall, self.speed)

    def step(self, seconds=1.0):
        self.wall += seconds
        for shard, scale in self.reporting.items():
            self.hear(report(shard, scale, self.moment.clock))
        message = self.core.next(self.moment)
        if message is not None:
            self.core.published(message, self.moment)
            self.published.append(message)
        return message

    def hear(self, message):
        self.core.receive_demand(message, self.moment.wall, self.moment)

    def set_bandwidth(self, rate):
        return self.core.receive_bandwidth(Bandwidth(rate))

    def shares(self):
        return {a.shard: round(a.share, 6) for a in self.published[-1].allotments if a.share}


def running(**options):
    run = Run(**options)
    run.reporting = {0: 1.0, 1: 3.0}
    run.set_bandwidth(2.0)
    run.step()
    return run


def test_the_first_decision_comes_at_once_and_solves_the_multiplier():
    run = running()
    assert run.published[0].cause == "start"
    assert run.published[0].version == 1
    assert run.published[0].multiplier == pytest.approx(4.0, rel=1e-6)
    assert run.published[0].effective_at == pytest.approx(run.moment.clock + 0.3)
    assert run.shares() == {0: 0.25, 1: 0.75}


def test_a_new_bandwidth_is_published_at_once_and_slots_go_on_from_the_old_rate():
    run = running()
    run.wall += 2.0
    run.set_bandwidth(4.0)
    message = run.step(0.0)
    before = run.published[-2]
    assert message.cause == "bandwidth"
    assert message.multiplier == pytest.approx(1.0, rel=1e-6)
    assert message.first_slot == pytest.approx(2.0 * (message.effective_at - before.effective_at))


def test_what_does_not_change_is_said_again_but_rarely():
    run = running()
    causes = [m.cause for m in (run.step() for _ in range(20)) if m is not None]
    assert causes == ["refresh"] * (20 // int(REFRESH_SECONDS))


def test_a_silent_shard_loses_its_budget_and_gets_it_back():
    run = running()
    del run.reporting[1]
    for _ in range(6):
        run.step()
    assert run.published[-1].cause == "silent-shard"
    assert run.shares() == {0: 1.0}
    assert {a.shard: a.share for a in run.published[-1].allotments}[1] == 0.0
    assert run.published[-1].multiplier == pytest.approx(0.25, rel=1e-6)
    run.reporting[1] = 3.0
    run.step()
    assert run.published[-1].cause == "new-shard"
    assert run.shares() == {0: 0.25, 1: 0.75}


def test_shares_move_smoothly_and_all_the_way():
    run = running()
    run.reporting[0] = 9.0
    run.step()
    assert 0.25 < run.shares()[0] < 0.75
    for _ in range(30):
        run.step()
    assert run.shares()[0] == pytest.approx(0.75, abs=0.01)
    assert all(sum(a.share for a in m.allotments) == pytest.approx(1.0) for m in run.published)


def test_an_older_report_never_overwrites_a_newer_one():
    run = running()
    run.reporting = {}
    run.hear(report(0, 100.0, run.moment.clock - 10))
    assert run.core.fleet.shards[0].curve.demand[0] == pytest.approx(1.0 / GRID[0] ** 0.5)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (report(64), "only 64"),
        (report(0, at=START + 1e6), "in the future"),
        (report(0, demand=[1.0]), "as many of each"),
        (report(0, thresholds=GRID[::-1]), "rise strictly"),
    ],
)
def test_bad_reports_are_refused(message, reason):
    run = Run()
    with pytest.raises(BadMessage, match=reason):
        run.hear(message)
    assert run.core.fleet.shards == {}


def test_without_a_bandwidth_the_rate_is_zero_and_shares_are_known():
    run = Run()
    run.reporting = {0: 1.0}
    run.step()
    assert run.published[-1].crawls_per_second == 0.0
    assert run.shares() == {0: 1.0}


def test_without_any_shard_the_bandwidth_is_published_for_those_to_come():
    run = Run()
    run.set_bandwidth(3.0)
    run.step()
    assert run.published[-1].crawls_per_second == 3.0
    assert run.published[-1].allotments == []


def restarted(old, **options):
    new = Run(**options)
    new.wall = old.wall + 10.0
    for message in old.published:
        new.core.receive_multipliers(message, new.moment)
    return new


def test_a_restart_goes_on_and_keeps_shares_until_the_shards_have_had_their_time():
    old = running()
    run = restarted(old)
    run.set_bandwidth(2.0)
    run.reporting = {0: 1.0}
    first = run.step()
    assert first.cause == "start"
    assert first.version == old.published[-1].version + 1
    assert run.shares() == {0: 0.25, 1: 0.75}
    passed = 2.0 * (first.effective_at - old.published[-1].effective_at)
    assert first.first_slot == pytest.approx(old.published[-1].first_slot + passed)
    for _ in range(6):
        run.step()
    assert run.shares() == {0: 1.0}


def test_a_restart_without_a_readable_bandwidth_goes_on_with_the_last_rate():
    run = restarted(running())
    run.reporting = {0: 1.0, 1: 3.0}
    assert run.step().crawls_per_second == 2.0


def test_only_news_is_taken_for_the_work_of_another_coordinator():
    run = running()
    own = run.published[-1]
    assert not run.core.receive_multipliers(own, run.moment)
    other = restarted(run)
    other.set_bandwidth(2.0)
    assert run.core.receive_multipliers(other.step(), run.moment)


def test_after_a_clock_that_ran_ahead_slots_go_on_from_now():
    old = running(origin=START + 1e7)
    run = restarted(old, origin=START)
    run.set_bandwidth(2.0)
    run.reporting = {0: 1.0}
    message = run.step()
    assert message.version == old.published[-1].version + 1
    assert message.effective_at == pytest.approx(run.moment.clock + 0.3)
    assert message.first_slot >= old.published[-1].first_slot


def test_every_version_is_newer_and_every_slot_has_one_number():
    run = running(speed=86_400.0)
    for second in range(60):
        if second % 7 == 0:
            run.set_bandwidth(float(second % 5))
        run.reporting[0] = 1.0 + second % 3
        run.step()
    for before, after in pairwise(run.published):
        assert after.version == before.version + 1
        assert after.effective_at >= before.effective_at
        passed = before.crawls_per_second * (after.effective_at - before.effective_at)
        assert after.first_slot == pytest.approx(before.first_slot + passed, rel=1e-9, abs=1e-3)


def test_a_backlog_has_a_few_rounds_of_reports_and_many_slots_to_go():
    assert relaxation(100.0, 5.0) == 5.0
    assert relaxation(0.002, 5.0) == pytest.approx(128_000.0)
    assert relaxation(0.0, 5.0) == 5.0
    assert SlotTimeline().newest is None
