"""When a request that comes late breaks a promise, and when the broker had it come late."""

import pytest
from made_ledgers import asked, ledger

from services.verify.simulation.budgets import (
    EARLY_SECONDS,
    ON_THE_WAY_SECONDS,
    SURE_AGAIN_SECONDS,
    in_time,
)
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.plan import Fault, Scale, SimulationPlan, Weather

CALM = Weather(slow_commits=0.0, slow_messages=0.0, slow_threads=0.0, partly=0.0, uneven=0.0)
SCALE = Scale()
ROUNDING = 1e-3


def is_in_time(slot, written_at, *outages, kind="broker-down"):
    """Whether a request may come so late; seconds, and outages with how long they take."""
    faults = tuple(Fault(at, kind, "", seconds) for at, seconds in outages)
    found = ledger(requests=[asked(BEGINNING + slot, written_at=BEGINNING + written_at)])
    return in_time(found, SimulationPlan(0, SCALE, faults, CALM)).passed


@pytest.mark.parametrize(
    ("slot", "written_at", "outages"),
    [
        # As seen: between two outages nobody is sure again, and so after the last one.
        (6.823, 14.514, [(5.946, 1.31), (7.458, 2.67), (11.454, 1.94), (12.929, 0.33)]),
        (9.386, 14.569, [(9.757, 2.25)]),
    ],
)
def test_a_request_waits_until_its_scheduler_is_sure_again(slot, written_at, outages):
    assert is_in_time(slot, written_at, *outages)
    last = max(at + seconds for at, seconds in outages)
    late = max(last + SURE_AGAIN_SECONDS, slot + SCALE.session_seconds) + ON_THE_WAY_SECONDS
    assert not is_in_time(slot, late + ROUNDING, *outages)


def test_what_could_have_come_between_two_outages_should_have():
    outages = [(10.0, 4.0), (21.0, 4.0)]
    most = 4.0 + SURE_AGAIN_SECONDS + ON_THE_WAY_SECONDS

    assert is_in_time(10.0, 10.0 + most - ROUNDING, *outages)
    assert not is_in_time(10.0, 26.0, *outages)


def test_nothing_else_is_an_excuse_for_longer_than_a_session():
    most = SCALE.session_seconds + ON_THE_WAY_SECONDS

    assert is_in_time(10.0, 10.0 + most - ROUNDING)
    assert not is_in_time(10.0, 10.0 + most + ROUNDING)
    assert not is_in_time(10.0, 10.0 + most + ROUNDING, (20.0, 4.0))
    assert not is_in_time(10.0, 10.0 + most + ROUNDING, (10.0, 4.0), kind="database-down")
    assert not is_in_time(10.0, 10.0 - EARLY_SECONDS - ROUNDING)
