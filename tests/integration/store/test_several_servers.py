"""`DATABASE_URL` names several servers, of which one takes writes."""

import asyncio
import uuid

import psycopg
import pytest

from migrations.engine import alchemy_engine
from shared.runtime.database_watch import DatabaseWatch
from shared.runtime.settings import Settings
from shared.store.connection import connect
from shared.store.lease import connect_lease

SOCKET = ".s.PGSQL.5432"


@pytest.fixture
async def address(database_url, scratch_dir):
    """A server that takes connections and never answers comes first."""

    async def be_silent(reader, writer):
        await reader.read()
        writer.close()
        await writer.wait_closed()

    silent = scratch_dir / f"silent-{uuid.uuid4().hex[:8]}"
    silent.mkdir()
    server = await asyncio.start_unix_server(be_silent, str(silent / SOCKET))
    given = psycopg.conninfo.conninfo_to_dict(database_url)
    yield (
        f"postgresql://{given['user']}@/{given['dbname']}?host={silent},{given['host']}"
        "&target_session_attrs=read-write"
    )
    server.close()
    await asyncio.sleep(0.1)  # those that are still there see the end of their clients


async def test_a_server_that_hangs_does_not_hide_the_one_that_answers(address):
    watch = DatabaseWatch(Settings(database_url=address), "estimator")

    assert await watch._failure() is None
    await watch._disconnect()


async def test_every_client_goes_on_to_the_next_server(address, monkeypatch):
    monkeypatch.setattr("shared.store.connection.CONNECT_SECONDS", 2)

    def ask():
        with connect(address, "test") as connection:
            return connection.execute("SELECT 1").fetchone()

    assert await asyncio.to_thread(ask) == (1,)
    lease = await connect_lease(address)
    assert await (await lease.execute("SELECT 1")).fetchone() == (1,)
    await lease.close()


async def test_migrations_go_on_to_the_next_server(address):
    def ask():
        with alchemy_engine(address).connect() as connection:
            return connection.exec_driver_sql("SELECT 1").scalar()

    assert await asyncio.wait_for(asyncio.to_thread(ask), 60) == 1
