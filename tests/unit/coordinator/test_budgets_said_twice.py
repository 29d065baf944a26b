"""An operator who says a budget twice is heard as one who says it once."""

from coordination_run import running

from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth

BY_DAY = Bandwidth(2.0, schedule=[ScheduledRate(0, 7.0)])


def test_a_budget_that_is_said_again_before_the_next_decision_is_told_as_the_operators():
    run = running()
    run.wall += 2.0
    assert run.core.receive_bandwidth(BY_DAY)
    assert not run.core.receive_bandwidth(BY_DAY)
    message = run.step(0.0)
    assert message.cause == "bandwidth"
    assert message.why == "an operator changed the bandwidth from 2 to 7 crawls/s"
