"""The coordination over time: who is there, what is published when, numbers that never go back."""

import math
from itertools import pairwise

import pytest
from coordination_run import GRID, START, Run, report, running
from msgspec.structs import replace

from services.coordinator.allotment import relaxation
from services.coordinator.core import REFRESH_SECONDS, Coordination
from shared.contracts.codec import BadMessage
from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth
from shared.pacing.slots import SlotPlan, SlotTimeline, is_late


def test_the_first_decision_comes_at_once_and_solves_the_multiplier():
    run = running()
    assert run.published[0].cause == "start"
    assert run.published[0].version == 1
    assert run.published[0].multiplier == pytest.approx(4.0, rel=1e-6)
    assert run.published[0].effective_at == pytest.approx(run.moment.clock + 0.3)
    assert run.shares() == {0: 0.25, 1: 0.75}


def test_a_decision_that_came_too_late_is_made_again_further_ahead():
    run = running()
    run.set_bandwidth(4.0)
    leads, versions = [], []
    for _ in range(7):
        run.wall += 0.1
        message = run.core.next(run.moment)
        run.core.came_late(message)
        assert message.cause == "bandwidth"
        assert message.crawls_per_second == 4.0
        leads.append(message.effective_at - run.moment.clock)
        versions.append(message.version)

    last = run.step(0.0)

    assert leads == pytest.approx([0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 10.0], abs=1e-6)
    assert [*versions, last.version] == list(range(2, 10))
    before = run.published[-2]
    assert before.version == 1
    assert last.first_slot == pytest.approx(2.0 * (last.effective_at - before.effective_at))
    for _ in range(60):
        run.step(6.0)  # all in time: the lead goes back to what is configured
    again = run.published[-1]
    assert again.effective_at == pytest.approx(run.moment.clock + 0.3)


def test_a_new_bandwidth_is_published_at_once_and_slots_go_on_from_the_old_rate():
    run = running()
    run.wall += 2.0
    run.set_bandwidth(4.0)
    message = run.step(0.0)
    before = run.published[-2]
    assert message.cause == "bandwidth"
    assert message.multiplier == pytest.approx(1.0, rel=1e-6)
    assert message.why == "an operator changed the bandwidth from 2 to 4 crawls/s"
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
    assert run.published[-1].why == (
        "shard 1 did not report for 5 s: 75.0% of the bandwidth goes to the others"
    )
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
    run.hear(report(0, 1.0, run="a", sequence=7))
    run.hear(report(0, 100.0, run="a", sequence=6))
    run.hear(report(0, 100.0, run="a", sequence=7))
    assert run.core.fleet.shards[0].curve.demand[0] == pytest.approx(1.0 / GRID[0] ** 0.5)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (report(4096), "at most 4096"),
        (report(0, demand=[1.0]), "as many of each"),
        (report(0, thresholds=GRID[::-1]), "rise strictly"),
        (report(0, ripe=[1e300] * len(GRID)), "more than there can be"),
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
    new.core.follow()
    new.wall = old.wall + 10.0
    for message in old.published:
        new.core.receive_multipliers(message, new.moment)
    new.core.lead(2, "coordinator-2")
    return new


def test_a_restart_goes_on_and_keeps_shares_until_the_shards_have_had_their_time():
    old = running()
    run = restarted(old)
    run.set_bandwidth(2.0)
    run.reporting = {0: 1.0}
    first = run.step()
    assert first.cause == "takeover"
    assert (first.epoch, first.leader) == (2, "coordinator-2")
    assert first.version == old.published[-1].version + 1
    assert run.shares() == {0: 0.25, 1: 0.75}
    passed = 2.0 * (first.effective_at - old.published[-1].effective_at)
    assert first.first_slot == pytest.approx(old.published[-1].first_slot + passed)
    assert "epoch 2" in first.why
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
    run.core.follow()
    assert run.core.last.epoch == 2


def test_our_own_message_that_comes_back_before_it_is_confirmed_is_not_anothers():
    run = running()
    run.wall += 2.0
    run.set_bandwidth(4.0)
    message = run.core.next(run.moment)
    assert not run.core.receive_multipliers(message, run.moment)
    run.core.published(message, run.moment)
    assert run.core.timeline.newest.version == message.version


def test_what_a_replaced_leader_still_says_is_left_out():
    zombie = running()
    leader = restarted(zombie)
    leader.set_bandwidth(2.0)
    leader.reporting = {0: 1.0, 1: 3.0}
    said = leader.step()
    zombie.wall = leader.wall
    for rate in (50.0, 70.0, 90.0):
        zombie.set_bandwidth(rate)
        late = zombie.step()
        assert not leader.core.receive_multipliers(late, leader.moment)
    assert late.version > said.version
    assert leader.core.timeline.newest.slots_per_second == 2.0
    assert leader.step(6.0).version == said.version + 1


def test_a_new_leader_claims_the_topic_before_it_reads_what_stands_there():
    old = running()
    last = old.published[-1]
    new = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    assert new.claim(2, "coordinator-2") is None, "there is nothing to go on from"
    new.receive_multipliers(last, old.moment)

    claim = new.claim(2, "coordinator-2")
    new.leave_out(claim)

    assert (claim.epoch, claim.version, claim.leader) == (2, last.version + 1, "coordinator-2")
    assert is_late(claim, appended_at=1.0), "it is no plan"
    assert not new.receive_multipliers(replace(last, version=9), old.moment), "said after it"


def test_a_follower_knows_what_the_leader_knows_and_goes_on_smoothly():
    leader = running()
    follower = Run()
    follower.core.follow()
    follower.set_bandwidth(2.0)
    for second in range(1, 20):
        leader.reporting[0] = 1.0 + second / 10
        message = leader.step()
        follower.wall = leader.wall
        for number in leader.reporting:
            follower.hear(leader.core.fleet.shards[number].curve)
        if message is not None:
            follower.core.receive_multipliers(message, follower.moment)
    follower.core.lead(2, "coordinator-2")
    follower.reporting = leader.reporting
    first = follower.step()
    assert first.cause == "takeover"
    assert first.version == leader.published[-1].version + 1
    before = {a.shard: a.share for a in leader.published[-1].allotments}
    after = {a.shard: a.share for a in first.allotments}
    assert after == pytest.approx(before, abs=0.05)


def test_after_a_clock_that_ran_ahead_slots_go_on_from_now():
    old = running(origin=START + 1e7)
    run = restarted(old, origin=START)
    run.set_bandwidth(2.0)
    run.reporting = {0: 1.0}
    message = run.step()
    assert message.version == old.published[-1].version + 1
    assert message.effective_at == pytest.approx(run.moment.clock + 0.3)
    assert message.first_slot >= old.published[-1].first_slot


HOUR = 3600.0


def run_with_clocks(steps, seconds=12, counted=True):
    """Two shards that report each second; shard 1's clock is off by `steps[second]`."""
    run = running()
    run.reporting = {}
    off = 0.0
    for second in range(seconds):
        off += steps.get(second, 0.0)
        since = run.moment.clock
        run.wall += 1.0
        for shard, scale, wrong in ((0, 1.0, 0.0), (1, 3.0, off)):
            told = run.report(shard, scale, since)
            passed = 1.0 + (steps.get(second, 0.0) if shard else 0.0)
            achieved = run.slots[shard] / passed if passed > 0 else 0.0
            told = replace(
                told, reported_at=told.reported_at + wrong, achieved_crawls_per_second=achieved
            )
            if counted:
                told = replace(told, run="first", sequence=second + 1)
            run.hear(told)
        if message := run.core.next(run.moment):
            run.core.published(message, run.moment)
            run.published.append(message)
    return run


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("step", [HOUR, -HOUR, 30.0, -30.0])
def test_a_shard_whose_clock_is_set_keeps_its_share(step, counted):
    run = run_with_clocks({4: step, 8: -step}, counted=counted)
    assert run.shares() == {0: 0.25, 1: 0.75}
    assert {m.cause for m in run.published} <= {"start", "new-shard", "demand", "refresh"}
    assert run.core.fleet.live(run.moment.wall) == {0, 1}


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_shard_that_moves_to_a_worker_with_another_clock_is_heard_at_once(ahead):
    run = running()
    run.hear(replace(report(1, 3.0, run.moment.clock + ahead), run="a", sequence=500))
    run.hear(replace(report(1, 9.0, run.moment.clock), instance="other", run="b", sequence=1))
    assert run.core.fleet.shards[1].curve.instance == "other"
    run.hear(replace(report(1, 12.0, run.moment.clock), instance="other", run="c", sequence=1))
    assert run.core.fleet.shards[1].curve.run == "c", "it was started again"


def test_what_a_shard_made_before_it_was_loaded_again_is_forgotten():
    run = running()
    told = report(1, 3.0, run.moment.clock)
    run.hear(replace(told, run="a", sequence=1))
    run.core.fleet.shards[1].usage.usable = 0.0
    run.hear(replace(told, run="a", sequence=2))
    assert run.core.fleet.shards[1].usage.usable == 0.0
    run.hear(replace(told, run="b", sequence=1))
    assert run.core.fleet.shards[1].usage.usable == math.inf


@pytest.mark.parametrize("step", [HOUR, -HOUR, 30.0, -30.0, 0.5])
def test_a_coordinator_whose_clock_is_set_goes_on_from_now(step):
    """Its plans move with its clock, as they do at the schedulers."""
    run = running()
    for _ in range(5):
        run.step()
    count, before = len(run.published), run.core.timeline.newest
    passed = before.passed(run.moment.clock)
    run.origin += step
    run.stepped += step
    run.set_bandwidth(4.0)
    message = run.step()
    assert len(run.published) == count + 1
    assert message.effective_at == pytest.approx(run.moment.clock + 0.3)
    assert message.first_slot == pytest.approx(passed + 2.0 * 1.3)
    assert message.cause == "bandwidth"


def test_every_version_is_newer_and_every_slot_has_one_number():
    run = running(speed=86_400.0)
    for second in range(60):
        if second % 7 == 0:
            run.set_bandwidth(float(second % 5))
        run.reporting[0] = 1.0 + second % 3
        run.step()
    assert len(run.core.timeline._plans) < 70, "old plans are forgotten"
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


def test_a_schedule_takes_effect_to_the_moment_and_says_so():
    midnight = 1_699_920_000.0
    run = Run(origin=midnight + 6 * 3600 - 30)
    run.reporting = {0: 1.0}
    day = [ScheduledRate(0, 2.0), ScheduledRate(6 * 3600, 10.0)]
    run.core.receive_bandwidth(Bandwidth(2.0, schedule=day))
    run.step()
    while run.wall < 40:
        run.step(max(min(run.core.seconds_to_change(run.moment), 1.0), 0.05))
    causes = [m for m in run.published if m.cause == "schedule"]
    assert [(m.effective_at, m.crawls_per_second) for m in causes] == [(midnight + 21_600, 10.0)]
    assert causes[0].computed_at < midnight + 21_600
    start = run.published[0].effective_at
    passed = run.core.timeline.passed(midnight + 21_610)
    assert passed == pytest.approx((midnight + 21_600 - start) * 2 + 100)


def test_a_ramp_is_said_once_and_counted_exactly():
    run = running()
    run.wall += 5.0
    now = run.moment.clock
    run.core.receive_bandwidth(Bandwidth(100.0, set_at=now, ramp_seconds=20.0, ramp_from=0.0))
    for _ in range(30):
        run.step()
    causes = [m.cause for m in run.published]
    assert causes.count("bandwidth") == 1
    assert set(causes) <= {"start", "bandwidth", "ramp", "demand", "refresh"}
    assert run.core.timeline.newest.slots_per_second == 100.0
    timeline, counted = SlotTimeline(), 0
    began = next(m.effective_at for m in run.published if m.cause == "bandwidth")
    for message in run.published:
        if message.effective_at > began:
            since = timeline.newest.effective_at
            counted += len(timeline.between(since, message.effective_at)[0])
        timeline.add(SlotPlan.from_message(message))
    end = run.published[-1].effective_at
    budget = 100 * 20 / 2 - 5.0 * (began - now) ** 2 / 2 + 100 * (end - now - 20.0)
    assert counted == pytest.approx(budget, abs=1.01)
