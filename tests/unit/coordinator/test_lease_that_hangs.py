"""A database that hangs in the middle of an answer keeps no leader from deciding."""

import asyncio
import contextlib

import pytest

from services.coordinator import leadership as module
from services.coordinator.leadership import Leadership

LEASE_SECONDS = 2.0
NEVER = 3600.0
"""Longer than any test waits."""


class Connection:
    """It is cancelled as psycopg's are: what hangs is waited for, for some seconds more."""

    def __init__(self):
        self.given_up = asyncio.Event()
        self.closed = asyncio.Event()
        self.answers = asyncio.Event()
        self.asked = 0

    async def renew(self, *_):
        self.asked += 1
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            await self.given_up.wait()
            raise
        return True

    async def close(self):
        self.closed.set()


@pytest.fixture
def connections(monkeypatch):
    """Connections that hang; the list is of those that were made."""
    made = []

    async def connect(_url):
        made.append(Connection())
        return made[-1]

    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(module, "CONFIRM_SECONDS", NEVER)
    monkeypatch.setattr(module, "connect_lease", connect)
    monkeypatch.setattr(module, "renew_lease", lambda connection, *_: connection.renew())
    return made


@pytest.fixture
def leader(connections):
    """One that leads, and did not renew its lease for long."""
    made = Leadership("postgresql://", "one", LEASE_SECONDS, lambda: 0, lambda: None)
    made.epoch = 7
    return made


async def begun(connections, count=1):
    """Wait until so many connections were made."""
    while len(connections) < count:
        await asyncio.sleep(0)


async def test_a_leader_goes_on_while_what_hangs_is_given_up(leader, connections):
    async with asyncio.timeout(20):
        assert await leader.confirm()
        assert leader.trouble == "no answer within 0.01 s"
        await leader._turn()  # asks on another connection
        first, _ = connections
        assert not first.closed.is_set()
        first.given_up.set()
        await first.closed.wait()
    connections[1].given_up.set()


async def test_no_decision_waits_for_the_end_of_what_hangs(leader, connections, monkeypatch):
    """Neither while the loop asks, nor for an answer to what is asked before a decision."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", NEVER)
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 0.01)
    running = asyncio.ensure_future(leader.run(asyncio.Event()))
    async with asyncio.timeout(20):
        await begun(connections)
        assert [await leader.confirm() for _ in range(3)] == [True] * 3
        running.cancel()
        await asyncio.wait([running])
        assert not await leader.confirm()
    assert len(connections) == 1
    connections[0].given_up.set()


async def test_an_answer_that_does_not_come_is_waited_for_once(leader, connections, monkeypatch):
    """Decisions that follow each other soon would each come late else."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", NEVER)
    async with asyncio.timeout(20):
        monkeypatch.setattr(module, "CONFIRM_SECONDS", 0.01)
        assert await leader.confirm()
        monkeypatch.setattr(module, "CONFIRM_SECONDS", NEVER)
        assert await leader.confirm()
        connections[0].answers.set()
        while leader._is_in_doubt():
            assert await leader.confirm()
            await asyncio.sleep(0)
    assert leader.trouble is None


@pytest.mark.parametrize("answers", [True, False])
async def test_what_the_loop_has_found_meanwhile_is_not_asked_for_again(
    leader, connections, monkeypatch, answers
):
    if answers:
        monkeypatch.setattr(module, "ANSWER_SECONDS", NEVER)
    turn = asyncio.ensure_future(leader._turn())
    async with asyncio.timeout(20):
        await begun(connections)
        confirming = asyncio.ensure_future(leader.confirm())
        await asyncio.sleep(0)
        if answers:
            connections[0].answers.set()
        await turn
        assert await confirming
    assert [connection.asked for connection in connections] == [1]
    assert (leader.trouble is None) == answers
    connections[0].given_up.set()


async def test_a_leader_that_stood_still_hears_before_it_decides_that_it_was_replaced(
    leader, connections, monkeypatch
):
    async def replaced(*_):
        return False

    async def read(*_):
        return module.Lease(8, "two", 0, is_connected=True)

    monkeypatch.setattr(module, "renew_lease", replaced)
    monkeypatch.setattr(module, "read_lease", read)
    async with asyncio.timeout(20):
        assert not await leader.confirm()
    assert leader.leader == "two"


async def test_what_fails_after_nobody_waited_for_it_ends_the_worker_all_the_same(
    leader, connections, monkeypatch
):
    async def broken(connection, *_):
        await connection.answers.wait()
        raise ZeroDivisionError

    monkeypatch.setattr(module, "ANSWER_SECONDS", NEVER)
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 0.01)
    monkeypatch.setattr(module, "renew_lease", broken)
    async with asyncio.timeout(20):
        assert await leader.confirm()
        connections[0].answers.set()
        with contextlib.suppress(ZeroDivisionError):
            while await leader.confirm():
                await asyncio.sleep(0)
            raise AssertionError("it led on")
