"""Imports into several databases, of which one fails in the middle."""

import uuid

import psycopg
import pytest
from click.testing import CliRunner

from migrations.upgrade import migrate
from services.cli.main import main
from shared.contracts.databases import Databases

SHARDS = 4
URLS = [f"https://host-{number}.example/" for number in range(60)]


@pytest.fixture
def databases(postgres_server, monkeypatch, tmp_path):
    """Two that commands take for theirs."""
    names = [f"test_{uuid.uuid4().hex}" for _ in range(2)]
    home, other = (postgres_server.create_database(name) for name in names)
    text = f"0-1={home},2-3={other}"
    made = Databases.parse(text)
    for one in made.each:
        migrate(one.url, SHARDS, one.held)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("FRESHET_DATABASES", text)
    monkeypatch.setenv("FRESHET_PARTITIONS", str(SHARDS))
    (tmp_path / "pages.csv").write_text("url,importance\n" + "".join(f"{u},1\n" for u in URLS))
    yield made
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def pages_in(database):
    with psycopg.connect(database.url) as connection:
        return connection.execute("SELECT count(*) FROM page_urls").fetchone()[0]


FAILURES = {
    "it has no room": "RAISE disk_full",
    "it goes away": "PERFORM pg_terminate_backend(pg_backend_pid())",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_is_in_is_said_and_which_database_failed(databases, failure):
    home, other = databases.each
    with psycopg.connect(other.url) as connection:
        connection.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {FAILURES[failure]}; RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER fails BEFORE INSERT ON page_urls FOR EACH STATEMENT "
            "EXECUTE FUNCTION fail()"
        )
    done = CliRunner().invoke(main, ["pages", "import", "pages.csv"], catch_exceptions=False)
    assert done.exit_code == 2
    count = pages_in(home)
    assert 0 < count < len(URLS)
    assert f"up to {count} rows before that are in, and stay" in done.stderr
    assert ": shards 2-3/4: " in done.stderr
    assert pages_in(other) == 0
