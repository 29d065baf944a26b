"""Budgets of which the moment is still to come: who set them has a clock that is ahead."""

import pytest
from coordination_run import Run, running

from services.coordinator.core import Coordination
from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth
from shared.pacing.slots import SlotPlan, SlotTimeline


def test_a_ramp_that_a_clock_ahead_has_set_begins_when_ours_is_there():
    run = running()
    begins = run.moment.clock + 30.0
    message = Bandwidth(100.0, set_at=begins, ramp_seconds=20.0, ramp_from=2.0)
    run.core.receive_bandwidth(message)
    while run.moment.clock < begins + 25.0:
        run.step(max(min(run.core.seconds_to_change(run.moment), 1.0), 0.05))
    changes = [m.effective_at for m in run.published if m.cause == "bandwidth"]
    assert changes == [begins]
    timeline = SlotTimeline(SlotPlan.from_message(m) for m in run.published)
    start = timeline.at(begins - 20.0)
    assert timeline.passed(begins) == pytest.approx(start.passed(begins - 20.0) + 2 * 20)
    assert timeline.passed(begins + 20.0) == pytest.approx(timeline.passed(begins) + 51 * 20)


def test_a_bandwidth_of_later_that_tells_of_the_rate_before_stops_nobody():
    run = running()
    later = run.moment.clock + 3600.0
    run.core.receive_bandwidth(Bandwidth(5.0, set_at=later, ramp_from=2.0))
    assert run.step().crawls_per_second == 5.0


def looking_ahead(lead_seconds):
    run = Run()
    run.core = Coordination(silent_after_seconds=5.0, lead_seconds=lead_seconds)
    run.core.lead(1, "coordinator-1")
    run.reporting = {0: 1.0, 1: 3.0}
    return run


@pytest.mark.parametrize(("gap", "lead"), [(2, 3.0), (5, 10.0)])
def test_changes_that_follow_each_other_closely_lead_nobody_into_the_far_future(gap, lead):
    run = looking_ahead(lead)
    steps = [ScheduledRate(second, 1.0 + second // gap % 2) for second in range(0, 1440 * gap, gap)]
    run.origin = run.origin // 86_400 * 86_400
    run.core.receive_bandwidth(Bandwidth(1.0, schedule=steps))
    for _ in range(60):
        message = run.step()
        assert message is None or message.effective_at <= run.moment.clock + 2.0 * lead
    timeline = SlotTimeline(SlotPlan.from_message(m) for m in run.published)
    for second in range(30, 60):
        assert timeline.at(run.origin + second + 0.5).slots_per_second == 1.0 + second // gap % 2


@pytest.mark.parametrize("lead", [70.0, 600.0])
def test_whoever_is_told_to_look_far_ahead_numbers_the_slots_on(lead):
    run = looking_ahead(lead)
    run.set_bandwidth(2.0)
    for _ in range(40):
        run.step()
    assert len(run.published) > 5
    first = run.published[0]
    for message in run.published:
        passed = 2.0 * (message.effective_at - first.effective_at)
        assert message.first_slot == pytest.approx(passed)
