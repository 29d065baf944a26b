"""Budgets of which the moment is still to come: who set them has a clock that is ahead."""

import pytest
from coordination_run import running

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
