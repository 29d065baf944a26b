"""Recording decisions never holds anything up: a dead database costs the oldest ones at most."""

import asyncio
import tracemalloc

import pytest

from services.coordinator import history
from services.coordinator.history import DecisionHistory
from shared.contracts.messages import Allotment, Multipliers
from shared.store.multipliers import Decided

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def decision(version):
    return Decided(Multipliers(version, 0.0, 0.0, 1.0, 2.0, 0.0, [], "demand"), 2.0, 1.0, 0)


@pytest.mark.slow(0.5)
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


def test_decisions_about_many_shards_that_wait_take_little_memory():
    shards, decisions = 1024, 50
    kept = DecisionHistory(NOWHERE)
    tracemalloc.start()
    try:
        for version in range(decisions):
            shares = [Allotment(shard, 1.0 / (shards + shard + version)) for shard in range(shards)]
            message = Multipliers(version, 0.0, 0.0, 1.0, 2.0, 0.0, shares, "demand")
            kept.add(Decided(message, 2.0, 1.0, shards))
            del message, shares
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Three hours of them are a hundred megabytes, not a thousand.
    assert taken < 10_000 * decisions
