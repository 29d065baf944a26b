"""A standby that takes over: with it nothing that was committed is lost, without it the last is."""

import os
import signal

import psycopg
import pytest

from deploy.local.postgres_pair import PostgresPair
from migrations.engine import alchemy_engine
from shared.store.connection import connect


@pytest.fixture
def pair(scratch_dir):
    made = PostgresPair(scratch_dir)
    made.start()
    made.follow()
    yield made
    made.stop()


def address_of(pair):
    """Both servers, and only the one that takes writes, as an operator names them."""
    hosts = ",".join(str(server.socket_directory) for server in pair.servers.values())
    return f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"


def end_primary(pair):
    os.kill(pair.leading.process_id, signal.SIGKILL)
    pair.leading.stop()


@pytest.mark.slow(12)
@pytest.mark.postgres
def test_all_clients_find_the_server_that_was_promoted_and_what_was_committed(pair):
    address = address_of(pair)
    with connect(address, "test", autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n int4)")
        connection.execute("INSERT INTO kept VALUES (1)")

    end_primary(pair)
    pair.promote()

    with connect(address, "test", autocommit=True) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]
        connection.execute("INSERT INTO kept VALUES (2)")
    pair.follow()
    with alchemy_engine(address).connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM kept").scalar() == 2
    with psycopg.connect(pair.servers[pair.standby].uri) as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
