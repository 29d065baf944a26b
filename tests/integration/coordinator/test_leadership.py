"""The election on a real database: one leader, replaced when it is gone, never two epochs alike."""

import asyncio
import contextlib
import os
import signal

import psycopg
import pytest

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.coordinator import leadership
from services.coordinator.leadership import Leadership
from shared.store.lease import connect_lease, read_lease, release_lease, renew_lease, take_lease


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


async def test_of_many_one_leads_and_gives_the_lease_back_when_it_stops(migrated_url):
    async with candidates(migrated_url, 5) as made:
        first = await one_leader(made)
        epoch = first.leadership.epoch
        assert {c.leadership.leader for c in made} == {first.leadership.leader}
        await first.end()
        second = await one_leader(made)
        assert second.leadership.epoch > epoch


async def test_a_leader_whose_connection_dies_is_replaced_and_knows_it(migrated_url):
    async with candidates(migrated_url) as made:
        one = await one_leader(made)
        [two] = [c for c in made if c is not one]
        before = one.leadership.epoch
        async with one.leadership._lock:  # it can do nothing
            with psycopg.connect(migrated_url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(session_pid) FROM coordinator_lease"
                )
            after = await two.leads()
            assert after > before
        await one.leadership._turn()  # finds that its connection is gone
        await one.leadership._turn()
        assert not await one.leadership.confirm()
        assert two.leadership.epoch == after


async def test_a_leader_that_hangs_is_replaced_and_does_not_lead_when_it_goes_on(
    migrated_url, monkeypatch
):
    monkeypatch.setattr(leadership, "CONFIRM_SECONDS", 20.0)  # However slow this machine is.
    async with candidates(migrated_url) as made:
        one = await one_leader(made)
        [two] = [c for c in made if c is not one]
        before = one.leadership.epoch
        async with one.leadership._lock:  # it can do nothing, but its connection stays
            after = await two.leads()
            assert after > before
        one.leadership._renewed_at = float("-inf")
        assert not await one.leadership.confirm()
        assert two.leadership.epoch == after


async def test_a_leader_that_hears_of_a_newer_epoch_steps_back(migrated_url):
    async with candidates(migrated_url, 1) as (one,):
        epoch = await one.leads()
        one.leadership.superseded(epoch - 1, "two")
        one.leadership.superseded(epoch, one.leadership._name)
        assert one.leadership.epoch == epoch
        one.leadership.superseded(epoch + 1, "two")
        assert one.leadership.epoch == 0


async def test_a_leader_that_hears_another_in_its_own_epoch_steps_back(migrated_url):
    async with candidates(migrated_url, 1) as (one,):
        one.leadership.superseded(await one.leads(), "two")
        assert one.leadership.epoch == 0


async def test_an_epoch_is_higher_than_any_on_the_topic(migrated_url):
    candidate = Candidate(migrated_url, "restored", newest_epoch=10**15)
    assert await candidate.leads() == 10**15 + 1
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
        assert await empty.leads() > 0


async def test_options_of_the_address_stand_beside_those_of_the_lease(database_url):
    """The tables are in a schema that only the address names."""
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE SCHEMA crawl")
    url = f"{database_url}&options=-csearch_path%3Dcrawl"
    await asyncio.to_thread(migrate, url, 4)
    async with candidates(url, 1) as (only,):
        assert await only.leads() > 0
    async with await connect_lease(url) as lease:
        for name, value in (("statement_timeout", "2s"), ("synchronous_commit", "off")):
            assert await (await lease.execute(f"SHOW {name}")).fetchone() == (value,)


async def test_only_what_was_seen_can_be_taken(migrated_url):
    connection = await connect_lease(migrated_url)
    seen = await read_lease(connection)
    epoch = await take_lease(connection, "one", seen, 0)
    assert epoch > seen.epoch
    assert await take_lease(connection, "two", seen, 0) is None
    lease = await read_lease(connection)
    assert lease == (epoch, "one", 0, True)
    assert await renew_lease(connection, epoch, "one")
    assert await take_lease(connection, "two", lease, 0) is None, "it lives"
    assert not await renew_lease(connection, epoch + 1, "one")
    await release_lease(connection, epoch, "two")
    assert await renew_lease(connection, epoch, "one"), "only its holder gives it back"
    await release_lease(connection, epoch, "one")
    assert not await renew_lease(connection, epoch, "one")
    assert await take_lease(connection, "two", await read_lease(connection), 0) > epoch
    await connection.close()


async def test_a_takeover_that_the_database_forgets_leaves_one_leader(migrated_url):
    """A standby is promoted that has not got the last commits."""
    async with contextlib.AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(await connect_lease(migrated_url)) for _ in range(2)
        ]
        seen = await read_lease(one)
        forgotten = await take_lease(one, "one", seen, 0)
        await one.execute("UPDATE coordinator_lease SET epoch = 0, holder = '', beat = 0")
        epoch = await take_lease(two, "two", seen, 0)
        assert epoch != forgotten
        assert not await renew_lease(one, forgotten, "one")
        assert not await renew_lease(one, epoch, "one"), "not even in the same epoch"
        assert await renew_lease(two, epoch, "two")


@pytest.mark.postgres
async def test_a_takeover_survives_a_crash_of_the_server(scratch_dir):
    server = EmbeddedPostgres(scratch_dir / "crashing")
    server.start()
    try:
        url = server.create_database("crashing")
        await asyncio.to_thread(migrate, url, 4)
        connection = await connect_lease(url)
        epoch = await take_lease(connection, "one", await read_lease(connection), 0)
        os.kill(server.process_id, signal.SIGQUIT)
        with contextlib.suppress(psycopg.Error):
            await connection.close()
        server.stop()
        server.start()
        connection = await connect_lease(url)
        lease = await read_lease(connection)
        await connection.close()
        assert (lease.epoch, lease.holder) == (epoch, "one")
    finally:
        server.stop()
