"""A leader reads on the topic what it has said itself, before or after the broker answers."""

import pytest
from coordination_run import running


def test_a_decision_that_was_in_time_after_all_is_gone_on_from():
    """The broker had it in time, as all schedulers see; its answer to us said otherwise."""
    run = running()
    run.set_bandwidth(4.0)
    run.wall += 2.0
    message = run.core.next(run.moment)
    run.core.came_late(message)
    run.wall += 0.1
    assert not run.core.receive_multipliers(message, run.moment), "it is our own"

    again = run.step(0.0)

    assert again.version == message.version + 1
    passed = 4.0 * (again.effective_at - message.effective_at)
    assert again.first_slot == pytest.approx(message.first_slot + passed)
    assert run.core.last == again


def test_a_decision_that_comes_back_before_it_is_confirmed_counts_once():
    run = running()
    run.set_bandwidth(4.0)
    run.wall += 2.0
    message = run.core.next(run.moment)
    assert not run.core.receive_multipliers(message, run.moment)
    run.core.published(message, run.moment)
    assert not run.core.receive_multipliers(message, run.moment)
    assert run.core.timeline.newest.version == message.version
    assert run.step(0.0) is None
