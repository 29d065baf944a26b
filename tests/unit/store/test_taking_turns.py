"""What is done again and again goes on once a database is back, and says once that it is away."""

import asyncio
import contextlib

import psycopg
from structlog.testing import capture_logs

from shared.store.questions import take_turns


async def test_a_database_that_is_away_is_said_once_each_time_and_asked_again():
    answers = iter([None, "away", "away", None, "away", None])
    taken = []

    async def turn():
        answer = next(answers, "over")
        taken.append(answer)
        if answer == "over":
            raise asyncio.CancelledError
        if answer == "away":
            raise psycopg.OperationalError("the server is away\n")

    with capture_logs() as logs, contextlib.suppress(asyncio.CancelledError):
        await take_turns(turn, 0.0, "they wait")
    assert len(taken) == 7
    assert [(line["event"], line["error"]) for line in logs] == [
        ("they wait", "the server is away")
    ] * 2


async def test_what_is_no_trouble_of_the_database_is_raised():
    async def turn():
        raise ValueError

    with contextlib.suppress(ValueError):
        await asyncio.wait_for(take_turns(turn, 0.0, "they wait"), 5.0)
        raise AssertionError
