"""What is more than PostgreSQL takes is not waited for, though Python calls it operational."""

import psycopg
import pytest
from psycopg import errors

from services.estimator import passing
from services.scheduler.flow import handler
from shared.store.connection import PASSING, may_pass
from shared.store.stream_topics import StoredTopics

LIMITS = [
    errors.ProgramLimitExceeded("index row size 2720 exceeds maximum 2712"),
    errors.StatementTooComplex("stack depth limit exceeded"),
    errors.TooManyArguments("cannot pass more than 100 arguments to a function"),
]
PASSES = [
    psycopg.OperationalError("connection refused"),
    psycopg.InterfaceError("the connection is closed"),
    errors.AdminShutdown("terminating connection"),
    errors.DiskFull("No space left on device"),
    errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"),
]
JUDGES = [
    may_pass,
    passing.passes,
    passing.passes_at_once,
    handler._may_pass,
]


@pytest.mark.parametrize("judge", JUDGES)
def test_workers_end_at_a_limit_and_wait_for_a_server(judge):
    assert all(isinstance(error, PASSING) for error in LIMITS), "as Python has it"
    assert not any(map(judge, LIMITS))
    assert all(map(judge, PASSES))
    assert not judge(errors.UndefinedTable("relation does not exist"))


def test_a_limit_may_be_the_fault_of_what_was_to_be_written():
    assert all(map(passing.refuses_data, LIMITS))
    assert not any(map(passing.refuses_data, PASSES))


async def test_who_asks_for_topics_ends_at_a_limit(monkeypatch):
    asked = []

    def limited(*_):
        asked.append(1)
        assert len(asked) < 3
        raise LIMITS[0]

    topics = StoredTopics.__new__(StoredTopics)
    monkeypatch.setattr(topics, "_urls", ["one"], raising=False)
    monkeypatch.setattr(topics, "_note", limited, raising=False)
    with pytest.raises(errors.ProgramLimitExceeded):
        await topics.note({"page-updates": "an id"})
