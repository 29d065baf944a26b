"""Commands that are given one of several databases as the only one: none answers for all of it."""

import asyncio
import uuid

import psycopg
import pytest
from click.testing import CliRunner
from workers import settings_for

from migrations.upgrade import migrate
from services.cli.main import main
from shared.contracts.databases import Databases
from shared.runtime.kafka import ensure_topics

pytestmark = pytest.mark.postgres

PREFIX = f"half-{uuid.uuid4().hex[:8]}"
HOST, PAGE = "a.example", "https://a.example/1"

SEEN = "the database has the shards 0-1/4, but by the settings it has all shards"

COMMANDS = (
    ["status"],
    ["shards", "show"],
    ["shards", "grow", "8", "--yes"],
    ["explain", PAGE],
    ["pages", "import", "pages.csv", "--via", "copy"],
    ["pages", "remove", "--host", HOST, "--dry-run"],
    ["pages", "remove", "--host", HOST, "--yes"],
    ["pages", "max-age", "--prefix", PAGE, "--none", "--dry-run"],
    ["pages", "purge", "--dry-run"],
    ["pages", "purge", "--yes"],
    ["hosts", "erase", HOST, "--dry-run"],
    ["hosts", "erase", HOST, "--yes"],
    ["hosts", "show", HOST],
    ["hosts", "list"],
    ["groups", "show", HOST],
    ["positions", "list"],
    ["positions", "settle", "--topic", "signals", "--yes"],
    ["backup", "save", "kept.jsonl"],
    ["backup", "restore", "copy.jsonl"],
    ["changes"],
    ["calibration"],
    ["bandwidth", "history"],
    ["sites", "list"],
    ["sites", "remove", "https://a.example/"],
    ["subscriptions", "list"],
    ["subscriptions", "remove", "https://a.example/feed"],
)


@pytest.fixture(scope="module")
def half(postgres_server):
    """One of two databases."""
    name = f"test_{uuid.uuid4().hex}"
    url = postgres_server.create_database(name)
    first = Databases.parse(f"0-1={url},2-3=postgresql://nobody/pages").home
    migrate(url, 4, first.held)
    with psycopg.connect(url) as connection:  # it is in use
        connection.execute(
            "INSERT INTO stream_positions VALUES ('estimator', 'page-updates', 0, 1)"
        )
    yield url
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def topics(local_broker):
    asyncio.run(ensure_topics(settings_for(local_broker.bootstrap_servers, PREFIX)))


@pytest.fixture
def run(local_broker, topics, half, monkeypatch, tmp_path):
    """A function that runs a command with that one as the only database."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.csv").write_text(f"url,importance\n{PAGE},1\n")
    (tmp_path / "copy.jsonl").write_text('{"freshet_backup":1,"saved_at":1.7e9}\n')
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", local_broker.bootstrap_servers)
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", f"{PREFIX}-")
    monkeypatch.setenv("FRESHET_PARTITIONS", "4")
    monkeypatch.setenv("DATABASE_URL", half)
    return lambda *arguments: CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_command_answers_for_half_of_the_shards(run, arguments, tmp_path):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert SEEN in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "kept.jsonl").exists()


def test_two_databases_that_are_mixed_up_are_asked_for_nothing_of_a_host(run, half, monkeypatch):
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv("FRESHET_DATABASES", f"2-3={half},0-1=postgresql://127.0.0.1:1/pages")
    databases = Databases.parse(f"2-3={half},0-1=postgresql://127.0.0.1:1/pages")
    host = next(h for n in range(99) if databases.of_host(h := f"h{n}.example").url == half)
    for arguments in (["explain", f"https://{host}/"], ["hosts", "show", host]):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert "has the shards 0-1/4, but by the settings it has the shards 2-3/4" in result.stderr


def test_the_doctor_advises_nothing_that_is_refused(run):
    said = " ".join(run("doctor").stdout.split())
    assert SEEN in said
    assert "give all commands and workers the FRESHET_DATABASES that it was migrated with" in said
    assert run("migrate").exit_code == 2
    assert "by freshet migrate only an empty one gets other shards" in said
