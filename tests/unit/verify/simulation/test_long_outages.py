"""A server that is away for long is waited for, and all goes on by itself when it is back.

Ten minutes here; `make simulate` has it away for an hour.
"""

import os

import pytest

from services.verify.simulation.campaign import warm_up
from services.verify.simulation.plan import Fault, Scale, SimulationPlan, Weather
from services.verify.simulation.run import simulate

AWAY_SECONDS = float(os.environ.get("FRESHET_SIMULATED_OUTAGE_SECONDS", "600"))
BEGIN = 5.0
BACK_SECONDS = 30.0
CALM = Weather(slow_commits=0.02, slow_messages=0.01, slow_threads=0.005, partly=0.05, uneven=0.0)


def away_for_long(kind):
    scale = Scale(
        seconds=BEGIN + AWAY_SECONDS + 40.0,
        quiet_seconds=38.0,
        bound_seconds=20.0,
        partitions=2,
        hosts=3,
        pages=6,
        crawls_per_second=0.5,
        poll_seconds=300.0,
    )
    return simulate(SimulationPlan(7, scale, (Fault(BEGIN, kind, "", AWAY_SECONDS),), CALM))


@pytest.mark.long
@pytest.mark.slow(10)
@pytest.mark.parametrize("kind", ["database-down", "broker-down"])
def test_a_server_may_be_away_for_long(kind):
    warm_up()

    result = away_for_long(kind)

    assert result.passed, result.findings
    end = BEGIN + AWAY_SECONDS
    commits = [(at, who) for at, who, what in result.story if what == "commits"]
    if kind == "database-down":
        assert not [at for at, _ in commits if BEGIN + 1.0 < at < end]
    back = {who for at, who in commits if end < at < end + BACK_SECONDS}
    assert back >= {"estimator-1", "estimator-2"}
