"""Decisions in a real database: written in order, after an outage too."""

import asyncio

import psycopg

from migrations.upgrade import migrate
from services.coordinator.history import DecisionHistory
from shared.contracts.messages import Multipliers
from shared.store.multipliers import Decided


def decided(*fields):
    return Decided(Multipliers(*fields), 1.0, 1.0, 0)


async def test_decisions_wait_for_the_database_and_are_written_once(database_url):
    history = DecisionHistory(database_url)
    stopping = asyncio.Event()
    for version in (1, 2):
        history.add(decided(version, 10.0, 11.0, 0.5, 2.0, 0.0, [], "start"))
    running = asyncio.ensure_future(history.run(stopping))
    await asyncio.sleep(0.3)
    assert len(history) == 2, "there is no table yet"
    await asyncio.to_thread(migrate, database_url, 4)
    while len(history):
        await asyncio.sleep(0.05)
    history.add(decided(3, 12.0, 13.0, 0.25, 4.0, 0.0, [], "bandwidth"))
    while len(history):
        await asyncio.sleep(0.05)
    stopping.set()
    await running
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT version, computed_at, effective_at, multiplier, crawls_per_second, cause "
            "FROM multiplier_history ORDER BY id"
        ).fetchall()
    assert rows == [
        (1, 10.0, 11.0, 0.5, 2.0, "start"),
        (2, 10.0, 11.0, 0.5, 2.0, "start"),
        (3, 12.0, 13.0, 0.25, 4.0, "bandwidth"),
    ]
