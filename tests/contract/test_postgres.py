"""The embedded PostgreSQL starts, stops, and comes back after crashes of it or of its owner."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psycopg
import pytest

from deploy.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

OWNER = """
import sys, time
from pathlib import Path
from deploy.local.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
print(server.process_id, flush=True)
time.sleep(600)
"""


@pytest.fixture
def data_dir(scratch_dir: Path) -> Path:
    return scratch_dir / uuid.uuid4().hex


def owner(data_dir: Path) -> tuple[subprocess.Popen, int]:
    """Start a process that owns a server; return it and the server's pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data_dir)], stdout=subprocess.PIPE, text=True
    )
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    process.stdout.close()


def test_data_survives_a_stop(data_dir):
    server = EmbeddedPostgres(data_dir)
    server.start()
    uri = server.create_database("kept")
    assert server.create_database("kept") == uri
    with psycopg.connect(uri) as connection:
        connection.execute("CREATE TABLE page (id bigint)")
        connection.execute("INSERT INTO page VALUES (7)")
    server.stop()
    assert not server.accepts_queries()
    server.start()
    with psycopg.connect(uri) as connection:
        assert connection.execute("SELECT id FROM page").fetchall() == [(7,)]
    server.stop()


def test_the_settings_are_those_that_bulk_writes_need(database_url):
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SHOW random_page_cost").fetchone() == ("1.1",)
        assert connection.execute("SHOW checkpoint_timeout").fetchone() == ("30min",)
        assert connection.execute("SHOW wal_compression").fetchone() == ("off",)


@pytest.mark.parametrize("victims", ["owner", "server", "both"])
def test_it_comes_back_after_a_kill(data_dir, victims):
    process, server_pid = owner(data_dir)
    if victims in ("server", "both"):
        os.kill(server_pid, signal.SIGKILL)
    if victims in ("owner", "both"):
        process.kill()
    server = EmbeddedPostgres(data_dir)
    server.start()
    assert server.accepts_queries()
    server.stop()
    end(process)


def test_a_server_left_by_its_owner_is_ended(data_dir):
    process, _ = owner(data_dir)
    server = EmbeddedPostgres(data_dir)
    server.start()  # ends the other one, which has no right to the data any more
    assert server.accepts_queries()
    server.stop()
    assert not server.accepts_queries()
    end(process)


def test_each_test_has_a_database_of_its_own(database_url, postgres_uri):
    with psycopg.connect(database_url) as connection:
        query = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(query).fetchone() == (0,)
    assert database_url != postgres_uri
