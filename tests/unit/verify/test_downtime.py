"""What excuses a missing dead letter: its reader was down, and nothing else."""

import pytest

from services.verify.checking import HANDED_OVER_SECONDS, may_be_skipped
from services.verify.checks.downtime import downtimes_of
from services.verify.faults import Injected
from shared.contracts.topics import DEMAND_CURVES, PAGE_PARAMETERS, SIGNALS

SCHEDULERS = (PAGE_PARAMETERS.name, 0, 7)
COORDINATORS = (DEMAND_CURVES.name, 0, 7)
INGESTERS = (SIGNALS.name, 0, 7)
WRITTEN = dict.fromkeys((SCHEDULERS, COORDINATORS, INGESTERS), 12.0)


def fault(kind, *hit, began=10.0, ended=11.0, settled=14.0):
    return Injected(kind, f"{kind} of {hit}", began, ended, settled, frozenset(hit))


def test_the_poisons_own_time_is_no_excuse_for_its_letters():
    soft = [fault("poison"), fault("duplicate"), fault("reorder")]

    assert may_be_skipped(WRITTEN, soft) == set()


@pytest.mark.parametrize(
    ("hit", "skipped"),
    [
        ("scheduler", {SCHEDULERS}),
        ("coordinator", {COORDINATORS}),
        ("ingester", set()),
        ("estimator", set()),
        ("broker", {SCHEDULERS, COORDINATORS}),
    ],
)
def test_a_letter_may_be_missing_while_its_own_reader_was_down(hit, skipped):
    assert may_be_skipped(WRITTEN, [fault("kill", hit)]) == skipped


def test_a_reader_that_was_back_is_no_excuse():
    before = fault("kill", "scheduler", began=-6.0, settled=12.0 - HANDED_OVER_SECONDS - 0.1)
    assert may_be_skipped(WRITTEN, [before]) == set()
    assert may_be_skipped(WRITTEN, [fault("kill", "scheduler", began=15.0, settled=16.0)]) == set()


def test_a_fault_that_was_not_seen_to_settle_ends_when_it_was_undone():
    never = fault("pause", "scheduler", settled=None)

    assert downtimes_of([never], "scheduler") == [(10.0, 11.0)]
    assert downtimes_of([never], "coordinator") == []
