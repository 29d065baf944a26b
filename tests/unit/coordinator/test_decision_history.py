"""Recording decisions never holds anything up: a dead database costs the oldest ones at most."""

import asyncio

from services.coordinator import history
from services.coordinator.history import DecisionHistory
from shared.contracts.messages import Multipliers
from shared.store.multipliers import Decided

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def decision(version):
    return Decided(Multipliers(version, 0.0, 0.0, 1.0, 2.0, 0.0, [], "demand"), 2.0, 1.0, 0)


async def test_without_a_database_decisions_wait_and_the_stop_is_prompt():
    kept = DecisionHistory(NOWHERE)
    stopping = asyncio.Event()
    running = asyncio.ensure_future(kept.run(stopping))
    for version in range(5):
        kept.add(decision(version))
    await asyncio.sleep(0.7)
    assert not running.done()
    stopping.set()
    await asyncio.wait_for(running, 5)
    assert len(kept) == 5


def test_more_than_can_wait_pushes_the_oldest_out(monkeypatch):
    monkeypatch.setattr(history, "WAITING", 3)
    kept = DecisionHistory(NOWHERE)
    for version in range(10):
        kept.add(decision(version))
    assert len(kept) == 3
