"""A database that stops amid a command is given up and named; one that is busy is not."""

import os
import signal
import uuid

import psycopg
import pytest
from click.testing import CliRunner

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.cli.main import main
from shared.contracts.databases import Databases
from shared.store import watched_connection
from shared.store.connection import connect
from shared.store.patience import DATABASE_PATIENCE
from shared.store.watched_connection import ServerStopped, WatchedConnection

pytestmark = [pytest.mark.postgres, pytest.mark.slow(4)]

SHARDS = 4


@pytest.fixture(scope="module")
def server(scratch_dir):
    """One that tests may stop, with a database for shards 2 and 3."""
    server = EmbeddedPostgres(scratch_dir / f"stops-{uuid.uuid4().hex[:8]}", {"fsync": "off"})
    server.start()
    migrate(server.uri, SHARDS, "2-3/4")
    yield server
    server.stop()


@pytest.fixture
def stop(server, monkeypatch):
    """A function that stops it as it stands, until the test ends."""
    monkeypatch.setattr(watched_connection, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(watched_connection, "PROBE_SECONDS", 2)
    monkeypatch.setattr(watched_connection, "PROBES", 1)

    def signalled(number):
        for pid in server.processes():
            os.kill(pid, number)

    yield lambda: signalled(signal.SIGSTOP)
    signalled(signal.SIGCONT)


@pytest.fixture
def stopping(server, stop, monkeypatch):
    """A function: the server stops as soon as a command's so manieth connection to it is made."""

    def after(connections):
        made = WatchedConnection.connect.__func__
        left = [connections]

        def connecting(kind, *arguments, **options):
            connection = made(kind, *arguments, **options)
            if connection.info.host == str(server.socket_directory):
                left[0] -= 1
                if not left[0]:
                    stop()
            return connection

        monkeypatch.setattr(WatchedConnection, "connect", classmethod(connecting))

    return after


@pytest.fixture
def environment(server, database_url, monkeypatch, tmp_path):
    """Two databases, the second of which stops."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    url = server.uri.replace("postgres@", "postgres:hidden@")
    text = f"0-1={database_url},2-3={url}"
    monkeypatch.setenv("FRESHET_DATABASES", text)
    monkeypatch.setenv("FRESHET_PARTITIONS", str(SHARDS))
    migrate(database_url, SHARDS, Databases.parse(text).home.held)


@pytest.fixture
def asked(monkeypatch):
    """Whether it let anybody in, each time that it was asked; a test may say what it did."""
    asked, really = Asked(), WatchedConnection._lets_in

    def lets_in(connection):
        said = really(connection) if asked.said is None else asked.said[len(asked) % 2]
        asked.append(said)
        return said

    monkeypatch.setattr(WatchedConnection, "_lets_in", lets_in)
    return asked


class Asked(list):
    said = None


def test_a_server_that_stops_amid_a_transaction_keeps_nobody(server, stop, asked):
    def ask_and_ask():
        with (
            DATABASE_PATIENCE.ending(),
            connect(server.uri, "test") as connection,
            connection.transaction(),
        ):
            connection.execute("SELECT 1")
            stop()
            connection.execute("SELECT 1")

    with pytest.raises(ServerStopped, match=f"{server.socket_directory}:5432/postgres has said"):
        ask_and_ask()
    # Nor is the end of the transaction waited for.
    assert asked == [False]


@pytest.mark.parametrize("said", [None, [False, True]], ids=["it lets in", "not always"])
def test_a_statement_that_takes_long_is_not_cut(server, stop, monkeypatch, asked, said):
    monkeypatch.setattr(watched_connection, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(watched_connection, "PROBES", 2)
    asked.said = said
    with DATABASE_PATIENCE.ending(), connect(server.uri, "test") as connection:
        assert connection.execute("SELECT pg_sleep(0.6), 7").fetchone()[1] == 7
    assert len(asked) >= 2
    assert True in asked


def test_a_server_that_refuses_is_there(server):
    role = f"role_{uuid.uuid4().hex}"
    with psycopg.connect(server.uri, autocommit=True) as operator, DATABASE_PATIENCE.ending():
        operator.execute(f"CREATE ROLE {role} LOGIN")
        with connect(server.uri.replace("postgres@", f"{role}@"), "test") as connection:
            assert connection._lets_in()
            operator.execute(f"ALTER ROLE {role} NOLOGIN")
            assert connection._lets_in()


def test_a_command_says_which_database_has_stopped(stopping, environment):
    stopping(1)
    result = CliRunner().invoke(main, ["pages", "purge", "--dry-run"])
    assert result.exit_code == 2
    [said] = result.stderr.splitlines()
    assert said.startswith("Error: the database takes connections and does not answer: ")
    assert "socket:5432/postgres has said nothing for" in said
    assert "hidden" not in said


@pytest.mark.parametrize("connections", [1, 2])
def test_what_another_database_knows_is_shown(stopping, environment, connections):
    stopping(connections)
    result = CliRunner().invoke(main, ["shards", "show"])
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines()[-2:]] == ["0", "1"]
    [said] = result.stderr.splitlines()
    assert said.startswith("Error: shards 2-3/4 are left out: their database at postgresql://")
    assert "hidden" not in said
