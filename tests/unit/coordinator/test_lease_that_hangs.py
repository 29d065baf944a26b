"""A database that hangs in the middle of an answer keeps no leader from deciding."""

import asyncio

import pytest

from services.coordinator import leadership as module
from services.coordinator.leadership import Leadership


class Connection:
    """It is cancelled as psycopg's are: what hangs is waited for, for some seconds more."""

    def __init__(self):
        self.given_up = asyncio.Event()
        self.closed = asyncio.Event()

    async def hang(self, *_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.given_up.wait()
            raise

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
    monkeypatch.setattr(module, "connect_lease", connect)
    monkeypatch.setattr(module, "renew_lease", lambda connection, *_: connection.hang())
    return made


async def test_a_leader_goes_on_while_what_hangs_is_given_up(connections):
    leader = Leadership("postgresql://", "one", 2.0, lambda: 0, lambda: None)
    leader.epoch = 7
    async with asyncio.timeout(20):
        assert await leader.confirm()
        assert leader.trouble == "no answer within 0.01 s"
        await leader._turn()  # asks on another connection
        first, _ = connections
        assert not first.closed.is_set()
        first.given_up.set()
        await first.closed.wait()
    connections[1].given_up.set()
