"""An operator sets the budget, a schedule changes it: decisions tell which it was."""

import pytest
from coordination_run import START, Run

from services.coordinator.core import Coordination
from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth

SECOND = int(START % 86_400)
"""Of the day, when a run begins."""

BY_DAY = Bandwidth(
    2.0, schedule=[ScheduledRate(SECOND - 3600, 2.0), ScheduledRate(SECOND + 20, 9.0)]
)


class Standby:
    """A coordinator that reads all that one of a run reads, and then leads."""

    def __init__(self, run, bandwidth):
        self.run, self.bandwidth = run, bandwidth
        self.core = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)

    def hear(self):
        moment, core = self.run.moment, self.run.core
        if self.run.published:
            self.core.receive_multipliers(self.run.published[-1], moment)
        # At a start it comes after what was decided.
        self.core.receive_bandwidth(self.bandwidth)
        for shard in core.fleet.shards.values():
            self.core.receive_demand(shard.curve, moment.wall, moment)

    def takes_over(self):
        self.core.lead(2, "coordinator-2")
        return self.core.next(self.run.moment)


def leading(bandwidth):
    run = Run()
    run.reporting = {0: 1.0}
    run.core.receive_bandwidth(bandwidth)
    return run


@pytest.mark.parametrize("was_there", [True, False])
def test_who_takes_over_after_a_change_of_the_schedule_blames_no_operator(was_there):
    run = leading(BY_DAY)
    standby = Standby(run, BY_DAY)
    for _ in range(18):
        if was_there:
            standby.hear()
        run.step()
    standby.hear()
    run.wall += 4.0  # The leader is gone before it could tell of the change.

    message = standby.takes_over()

    assert message.cause == "takeover"
    assert message.why.endswith("the schedule changes the bandwidth from 2 to 9 crawls/s")


def test_what_an_operator_set_when_nobody_could_tell_of_it_is_told_by_who_takes_over():
    run = leading(Bandwidth(2.0))
    standby = Standby(run, Bandwidth(2.0))
    standby.hear()
    for _ in range(5):
        run.step()
        standby.hear()
    standby.bandwidth = Bandwidth(7.0, schedule=[ScheduledRate(0, 7.0)])
    standby.hear()
    run.wall += 4.0
    assert "an operator changed the bandwidth from 2 to 7" in standby.takes_over().why


def test_a_bandwidth_that_comes_while_a_decision_is_on_its_way_is_told_by_the_next_one():
    run = leading(Bandwidth(2.0))
    for _ in range(5):
        run.step()
    run.wall += 6.0
    run.hear(run.report(0, 1.0, run.moment.clock - 1.0))
    on_its_way = run.core.next(run.moment)
    run.core.receive_bandwidth(Bandwidth(2.0, schedule=[ScheduledRate(0, 7.0)]))
    run.core.published(on_its_way, run.moment)

    message = run.core.next(run.moment)

    assert message.cause == "bandwidth"
    assert message.why == "an operator changed the bandwidth from 2 to 7 crawls/s"
    run.core.published(message, run.moment)
    run.step()
    assert run.core.next(run.moment) is None
