"""Our own clock is set between two reports: what they say of that time counts for nothing."""

import pytest
from coordination_run import Run, report


@pytest.mark.parametrize("step", [0.5, 2.0, 4.0, -0.6])
def test_slots_of_a_time_in_which_our_clock_was_set_are_not_compared(step):
    """With the schedulers', of which none had noticed before its report."""
    run = Run()
    run.reporting = dict.fromkeys(range(4), 100.0)
    run.set_bandwidth(400.0)
    reported_at = {}
    for second in range(40):
        crawls = {n: run.core.timeline.allotted(n, run.moment.clock, run.moment.clock + 1.0)
                  for n in run.reporting}  # fmt: skip
        run.wall += 1.0
        if second == 20:
            run.origin += step
            run.stepped += step
        at = run.moment.clock
        for number in run.reporting:
            elapsed = at - reported_at.get(number, at - 1.0)
            reported_at[number] = at
            said = {"achieved_crawls_per_second": crawls[number] / elapsed, "run": "one"}
            run.hear(report(number, 100.0, at, sequence=second + 1, **said))
        if (message := run.core.next(run.moment)) is not None:
            run.core.published(message, run.moment)
            run.published.append(message)
    assert "shortfall" not in {message.cause for message in run.published}
    assert run.shares() == dict.fromkeys(range(4), 0.25)
