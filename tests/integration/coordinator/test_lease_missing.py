"""A database whose `coordinator_lease` has no row: who waits says so, and migrating mends it."""

import asyncio

import psycopg

from migrations.upgrade import migrate
from services.cli.doctor.database import look_at_database
from services.coordinator.leadership import Leadership
from shared.contracts.databases import Databases

SHARDS = 4


def lease_findings(url):
    databases = Databases.alone(url)
    found = look_at_database(databases.home, databases, SHARDS)
    return [(f.level, f.found, f.remedy) for f in found if f.about == "coordinator_lease"]


async def test_a_coordinator_whose_lease_has_no_row_says_what_to_do_and_leads_once_it_is_done(
    migrated_url,
):
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("DELETE FROM coordinator_lease")
    assert lease_findings(migrated_url) == [("risk", "no row", "freshet migrate")]
    stopping = asyncio.Event()
    leadership = Leadership(migrated_url, "one", 2.0, lambda: 0, lambda: None)
    running = asyncio.ensure_future(leadership.run(stopping))
    try:
        async with asyncio.timeout(60):
            while leadership.trouble is None:
                await asyncio.sleep(0.05)
        assert "coordinator_lease has no row" in leadership.trouble
        assert "freshet migrate" in leadership.trouble
        assert not leadership.epoch

        await asyncio.to_thread(migrate, migrated_url, SHARDS)
        async with asyncio.timeout(60):
            while not leadership.epoch or leadership.trouble is not None:
                await asyncio.sleep(0.05)
    finally:
        stopping.set()
        await running
    assert lease_findings(migrated_url) == []
