"""The election on a real database: one leader, replaced when it is gone, never two epochs alike."""

import asyncio
import contextlib

import psycopg
import pytest

from migrations.upgrade import migrate
from services.coordinator.leadership import Leadership
from shared.store.lease import connect_lease, read_lease, release_lease, renew_lease, take_lease


@pytest.fixture
async def migrated(database_url):
    await asyncio.to_thread(migrate, database_url, 4)
    return database_url


class Candidate:
    """A coordinator, as far as the election goes."""

    def __init__(self, database_url, name, newest_epoch=0):
        self.changes = asyncio.Event()
        self.stopping = asyncio.Event()
        self.leadership = Leadership(
            database_url, name, 2.0, lambda: newest_epoch, self.changes.set
        )
        self.task = asyncio.ensure_future(self.leadership.run(self.stopping))

    async def leads(self, seconds=20.0):
        async with asyncio.timeout(seconds):
            while not self.leadership.epoch:
                await asyncio.sleep(0.05)
        return self.leadership.epoch

    async def end(self):
        self.stopping.set()
        await self.task


@contextlib.asynccontextmanager
async def candidates(database_url, count=2):
    made = [Candidate(database_url, f"coordinator-{n}") for n in range(count)]
    try:
        yield made
    finally:
        for candidate in made:
            candidate.task.cancel()
        await asyncio.gather(*(c.task for c in made), return_exceptions=True)


async def one_leader(made):
    async with asyncio.timeout(20):
        while not any(c.leadership.epoch for c in made):
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    [leader] = [c for c in made if c.leadership.epoch]
    return leader


async def test_of_many_one_leads_and_gives_the_lease_back_when_it_stops(migrated):
    async with candidates(migrated, 5) as made:
        first = await one_leader(made)
        assert first.leadership.epoch == 1
        assert {c.leadership.leader for c in made} == {first.leadership.leader}
        await first.end()
        second = await one_leader(made)
        assert second.leadership.epoch == 2


async def test_a_leader_whose_connection_dies_is_replaced_and_knows_it(migrated):
    async with candidates(migrated) as made:
        one = await one_leader(made)
        [two] = [c for c in made if c is not one]
        async with one.leadership._lock:  # it can do nothing
            with psycopg.connect(migrated, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(session_pid) FROM coordinator_lease"
                )
            assert await two.leads() == 2
        await one.leadership._turn()  # finds that its connection is gone
        await one.leadership._turn()
        assert not await one.leadership.confirm()
        assert two.leadership.epoch == 2


async def test_a_leader_that_hangs_is_replaced_and_does_not_lead_when_it_goes_on(migrated):
    async with candidates(migrated) as made:
        one = await one_leader(made)
        [two] = [c for c in made if c is not one]
        async with one.leadership._lock:  # it can do nothing, but its connection stays
            assert await two.leads() == 2
        one.leadership._renewed_at = float("-inf")
        assert not await one.leadership.confirm()
        assert two.leadership.epoch == 2


async def test_a_leader_that_hears_of_a_newer_epoch_steps_back(migrated):
    async with candidates(migrated, 1) as (one,):
        await one.leads()
        one.leadership.superseded(1, "two")
        assert one.leadership.epoch == 1
        one.leadership.superseded(2, "two")
        assert one.leadership.epoch == 0


async def test_an_epoch_is_higher_than_any_on_the_topic(migrated):
    candidate = Candidate(migrated, "restored", newest_epoch=41)
    assert await candidate.leads() == 42
    await candidate.end()


async def test_without_a_database_nobody_begins_to_lead_and_it_says_why(database_url):
    async with candidates("postgresql://nobody@127.0.0.1:1/nothing", 1) as (lost,):
        async with asyncio.timeout(20):
            while lost.leadership.trouble is None:
                await asyncio.sleep(0.05)
        assert not lost.leadership.epoch
    async with candidates(database_url, 1) as (empty,):
        async with asyncio.timeout(20):
            while empty.leadership.trouble is None:
                await asyncio.sleep(0.05)
        assert "freshet migrate" in empty.leadership.trouble
        await asyncio.to_thread(migrate, database_url, 4)
        assert await empty.leads() == 1


async def test_only_what_was_seen_can_be_taken(migrated):
    connection = await connect_lease(migrated)
    seen = await read_lease(connection)
    assert await take_lease(connection, "one", seen, 0) == 1
    assert await take_lease(connection, "two", seen, 0) is None
    lease = await read_lease(connection)
    assert lease == (1, "one", 0, True)
    assert await renew_lease(connection, 1)
    assert await take_lease(connection, "two", lease, 0) is None, "it lives"
    assert not await renew_lease(connection, 2)
    await release_lease(connection, 1)
    assert not await renew_lease(connection, 1)
    assert await take_lease(connection, "two", await read_lease(connection), 0) == 2
    await connection.close()
