"""What a session tells the server about when to give it up."""

import contextlib
import os
import struct
import time

import psycopg
import pytest
from psycopg.errors import (
    LockNotAvailable,
    QueryCanceled,
    ReadOnlySqlTransaction,
    UndefinedObject,
)

from migrations.engine import alchemy_engine
from shared.store.connection import (
    LOCK_SECONDS,
    PASSING,
    READER_SILENT_SECONDS,
    READING,
    SILENT_SECONDS,
    Limits,
    connect,
    connect_writer,
    transport,
)
from shared.store.gathering import TooLarge, reading

MOST_SECONDS = 15
"""No lock outlives its holder by more."""


def setting(connection, name):
    return connection.execute("SELECT current_setting(%s)", (name,)).fetchone()[0]


def test_statements_of_many_shards_keep_their_plans(database_url):
    """Each has its own tables, and so its own statements."""
    with connect_writer(database_url, "test") as connection:
        for shard in range(500):
            connection.execute(f"SELECT {shard}")
        [kept] = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert kept >= 500


@pytest.mark.parametrize("open_", [connect, connect_writer])
def test_every_connection_is_given_up_in_time(database_url, open_):
    assert SILENT_SECONDS < MOST_SECONDS
    with open_(database_url, "test") as connection:
        connection.rollback()
        assert setting(connection, "idle_in_transaction_session_timeout") == f"{SILENT_SECONDS}s"
        assert setting(connection, "lock_timeout") == f"{LOCK_SECONDS}s"
        assert setting(connection, "client_connection_check_interval") == "2s"


def test_a_reader_has_time(database_url):
    with connect(database_url, "test", limits=READING) as connection:
        silent = setting(connection, "idle_in_transaction_session_timeout")
        assert silent == f"{READER_SILENT_SECONDS // 60}min"


@pytest.fixture
def hurried_url(database_url):
    """A database that gives up whoever takes long, as administrators set it against people."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        for what in ("statement_timeout", "transaction_timeout", "idle_session_timeout"):
            with contextlib.suppress(UndefinedObject):  # an older server has fewer of them
                connection.execute(f"ALTER DATABASE {name} SET {what} = '200ms'")
    return database_url


@pytest.mark.slow(2)
@pytest.mark.parametrize("open_", [connect, connect_writer])
def test_what_is_set_for_people_who_take_long_cuts_off_no_worker(hurried_url, open_):
    with psycopg.connect(hurried_url) as people, pytest.raises(psycopg.Error):
        people.execute("SELECT pg_sleep(0.5)")
    with open_(hurried_url, "test") as connection:
        connection.execute("SELECT pg_sleep(0.15)")
        connection.execute("SELECT pg_sleep(0.25)")
        connection.commit()
        time.sleep(0.3)
        connection.execute("SELECT 1")


@pytest.mark.parametrize("open_", [connect, connect_writer])
def test_what_is_set_of_dates_strings_and_isolation_is_no_matter(database_url, open_):
    with psycopg.connect(database_url, autocommit=True) as people:
        name = people.info.dbname
        people.execute(f"ALTER DATABASE {name} SET DateStyle = 'German'")
        people.execute(f"ALTER DATABASE {name} SET standard_conforming_strings = off")
        people.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
        people.execute("CREATE TABLE counted (n int8)")
        people.execute("INSERT INTO counted VALUES (0)")
    with open_(database_url, "test") as one, open_(database_url, "test") as other:
        assert one.execute("SELECT now()").fetchone()[0].year > 2000
        packed = b"\x00\x01\\'"
        assert one.execute("SELECT %s, %s", (packed, "\\'")).fetchone() == (packed, "\\'")
        # As an owner of a shard's row does who comes after another.
        other.execute("UPDATE counted SET n = n + 1")
        other.commit()
        one.execute("UPDATE counted SET n = n + 1")
        one.commit()
        assert one.execute("SELECT n FROM counted").fetchone() == (2,)


def test_who_looks_at_a_page_reads_only_and_not_for_long(database_url):
    looking = Limits(statement=1)
    for statement, refused in (
        ("SELECT pg_sleep(60)", QueryCanceled),
        ("CREATE TABLE mine (a int)", ReadOnlySqlTransaction),
    ):
        with pytest.raises(refused), connect(database_url, "test", limits=looking) as connection:
            connection.execute(statement)
    # A pooler may give the session to a worker next.
    with connect(database_url, "test", limits=looking) as connection:
        connection.rollback()
        assert setting(connection, "statement_timeout") == "0"
        assert setting(connection, "transaction_read_only") == "off"


def test_what_is_too_large_for_the_server_to_hand_over_is_not_waited_for(database_url):
    with (
        pytest.raises(TooLarge, match="array size exceeds") as found,
        reading(database_url) as reader,
    ):
        reader.connection.execute("SELECT array_fill(0, ARRAY[1000000000])")
    assert not isinstance(found.value, PASSING)


def test_a_migration_waits_for_locks(database_url):
    with alchemy_engine(database_url).begin() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "0"
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == (
            "1min"
        )


def test_what_the_address_says_of_the_network_stands():
    ours = transport("postgresql://db/freshet?keepalives_idle=60&tcp_user_timeout=1")
    assert ours.pop("client_encoding") == "UTF8"
    assert ours == {"keepalives": 1, "keepalives_interval": 2, "keepalives_count": 3}


def test_a_dead_network_is_noticed_in_time():
    known = transport("postgresql://db/freshet")
    dead = known["keepalives_idle"] + known["keepalives_count"] * known["keepalives_interval"]
    assert dead < MOST_SECONDS
    assert known["tcp_user_timeout"] < 1000 * MOST_SECONDS


@pytest.fixture
def row(database_url):
    """Locks the only row of a table."""
    with connect(database_url, "test", autocommit=True) as connection:
        connection.execute("CREATE TABLE one (a int)")
        connection.execute("INSERT INTO one VALUES (1)")
    return "UPDATE one SET a = a + 1"


def test_a_client_that_falls_silent_between_two_statements_is_given_up(database_url, row):
    silent = connect(database_url, "silent", limits=Limits(silent=1))
    silent.execute(row)
    with connect(database_url, "next", limits=Limits(lock=60)) as connection:
        connection.execute(row)
    with pytest.raises(PASSING):
        silent.execute("SELECT 1")


def test_a_client_that_falls_silent_in_the_middle_of_a_statement_is_given_up(database_url, row):
    silent = connect_writer(database_url, "silent")
    silent.execute("SET idle_in_transaction_session_timeout = '1s'")
    silent.commit()
    silent.execute(row)
    # The beginning of a message whose rest never comes.
    os.write(silent.pgconn.socket, b"B" + struct.pack(">i", 1_000_000) + bytes(1000))
    with connect(database_url, "next", limits=Limits(lock=60)) as connection:
        connection.execute(row)
    silent.close()


def test_a_writers_statement_is_one_message(database_url):
    """The server listens for silence only until the first message of a statement is whole."""
    with connect_writer(database_url, "test") as connection:
        connection.execute("SELECT %s::int", (1,))
        found = connection.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::int'"
        ).fetchone()
    assert found == (1,)


def test_who_waits_for_a_lock_is_told(database_url, row):
    with (
        connect(database_url, "holder") as holder,
        connect(database_url, "next", limits=Limits(lock=1)) as connection,
    ):
        holder.execute(row)
        with pytest.raises(LockNotAvailable):
            connection.execute(row)
