"""A lower budget holds at once, but for a plan that the machine kept from the broker too long."""

from aiokafka import ConsumerRecord
from made_ledgers import ledger

from services.verify.late_plans import AGAIN_SECONDS, changes_held
from shared.contracts.codec import encode
from shared.contracts.messages import Multipliers
from shared.contracts.topics import MULTIPLIERS

STAMPED = 1


def planned(at, append_by):
    """A plan as it stands on its topic: the broker had it at a time."""
    plan = Multipliers(1, at, at + 1, 0.0, 10.0, 0.0, [], append_by=append_by)
    milliseconds = int(at * 1000)
    value = encode(plan)
    return ConsumerRecord("multipliers", 0, 0, milliseconds, STAMPED, b"", value, None, 0, 0, ())


def held(changes, *plans, slow=()):
    return list(changes_held(changes, ledger(raw={MULTIPLIERS.name: plans}), slow))


FALLS = [(100.0, 50.0), (110.0, 20.0), (120.0, 60.0)]


def test_plans_that_came_in_time_excuse_nothing():
    assert held(FALLS, planned(110.2, 110.5)) == FALLS


def test_a_decrease_whose_plan_came_too_late_may_come_later():
    late = planned(111.0, 110.5)

    assert held(FALLS, late) == [FALLS[0], (110.0 + AGAIN_SECONDS, 20.0), FALLS[2]]
    assert held(FALLS, planned(105.0, 104.0)) == FALLS  # it was of another decision
    assert held(FALLS, planned(120.5, 120.1)) == FALLS  # more may be left out, it is no excuse


def test_a_machine_that_stood_still_excuses_as_long_as_it_did():
    assert held(FALLS, slow=[(109.0, 110.7)]) == [FALLS[0], (110.7, 20.0), FALLS[2]]
    assert held(FALLS, slow=[(90.0, 105.0)]) == FALLS


def test_changes_stay_in_order():
    ramp = [(100.0, 50.0), (110.0, 40.0), (110.25, 30.0)]
    late = planned(112.1, 111.9)

    assert held(ramp, late) == [*ramp[:2], (111.75, 30.0)]
    assert held([*ramp, (110.5, 20.0)], late) == [*ramp[:2], (111.75, 30.0), (112.0, 20.0)]
    assert held([*ramp, (111.0, 60.0)], late) == [*ramp[:2], (111.0, 60.0)]
