"""Where a server is away, full or lets nothing be written, each command says so in one line."""

import asyncio
import os
import socket
import subprocess
import sys
import uuid

import psycopg
import pytest
from click.testing import CliRunner
from workers import settings_for

from services.cli.main import main
from shared.runtime.kafka import ensure_topics

PAGE = "https://a.example/1"

READS = (
    ["status"],
    ["explain", PAGE],
    ["changes"],
    ["calibration"],
    ["shards", "show"],
    ["hosts", "list"],
    ["hosts", "show", "a.example"],
    ["groups", "show", "a.example"],
    ["sites", "list"],
    ["subscriptions", "list"],
    ["bandwidth", "history"],
    ["positions", "list"],
    ["pages", "purge", "--days", "3", "--yes"],
)
WRITES = (
    ["migrate"],
    ["pages", "import", "pages.csv"],
    ["hosts", "erase", "a.example", "--yes"],
    ["sites", "remove", "https://a.example/"],
    ["subscriptions", "remove", "https://a.example/"],
    ["shards", "grow", "16", "--yes"],
)


PREFIX = f"trouble-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def topics(local_broker):
    """Those of an installation."""
    asyncio.run(ensure_topics(settings_for(local_broker.bootstrap_servers, PREFIX)))


@pytest.fixture
def run(local_broker, topics, migrated_url, monkeypatch, tmp_path):
    """A function that runs a command, with another address of the database."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.csv").write_text(f"url,importance\n{PAGE},1\n")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", local_broker.bootstrap_servers)
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", f"{PREFIX}-")
    monkeypatch.setenv("FRESHET_PARTITIONS", "4")

    def invoke(arguments, url=migrated_url):
        monkeypatch.setenv("DATABASE_URL", url)
        return CliRunner().invoke(main, arguments)

    return invoke


def says_it(result):
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    (said,) = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    return said


@pytest.mark.parametrize("arguments", [*READS, *WRITES], ids=" ".join)
def test_a_database_that_refuses_connections(run, arguments):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    said = says_it(run(arguments, f"postgresql://freshet@127.0.0.1:{port}/freshet"))
    assert f"127.0.0.1:{port}" in said
    assert "cannot be reached" in said


@pytest.mark.parametrize("arguments", WRITES, ids=" ".join)
def test_a_database_that_only_reads(run, arguments, migrated_url):
    result = run(arguments, f"{migrated_url}&options=-c%20default_transaction_read_only%3Don")
    assert "read-only" in says_it(result)


def _full(url, table):
    """Let a table say what PostgreSQL says of a full disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE "
            "EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file \"base/1\": "
            "No space left on device'; END $$"
        )
        connection.execute(
            f"CREATE TRIGGER full_disk BEFORE INSERT OR DELETE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION full_disk()"
        )


@pytest.mark.parametrize(
    ("arguments", "table"),
    [
        (["pages", "import", "pages.csv"], "hosts"),
        (["sites", "remove", "https://a.example/"], "watched_sites"),
        (["shards", "grow", "16", "--yes"], "shard_splits"),
    ],
    ids=str,
)
def test_a_database_whose_disk_is_full(run, arguments, table, migrated_url):
    _full(migrated_url, table)
    said = says_it(run(arguments))
    assert "cannot do it now: could not extend file" in said
    assert "cannot be reached" not in said


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("arguments", [["settings"], ["topics", "list", "--json"], ["contract"]])
def test_an_answer_for_which_there_is_no_room(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "services.cli.main", *arguments],
            # Buffered, as it is unless somebody says otherwise: then it is written at the end.
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    # Where no broker runs, `topics list` says so before.
    assert done.stderr.splitlines()[-1] == "Error: cannot write: No space left on device"


def test_a_copy_for_which_there_is_no_room(run, tmp_path):
    (tmp_path / "kept.json.unfinished").symlink_to("/dev/full")
    said = says_it(run(["backup", "save", "kept.json"]))
    assert "No space left on device" in said
    assert not (tmp_path / "kept.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["dead-letters", "list"],
        ["dead-letters", "replay"],
        ["bandwidth", "get"],
        ["positions", "list", "--broken"],
        ["positions", "settle", "--topic", "signals", "--yes"],
        ["shards", "grow", "16", "--yes"],
        ["backup", "save", "kept.jsonl"],
        ["backup", "restore", "kept.jsonl"],
    ],
    ids=" ".join,
)
def test_a_broker_without_topics(run, monkeypatch, arguments, migrated_url, tmp_path):
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", "elsewhere-")
    copy = '{"freshet_backup":1,"saved_at":1.7e9}\n'
    (tmp_path / "kept.jsonl").write_text(copy)
    said = says_it(run(arguments))
    assert "freshet topics ensure" in said
    with psycopg.connect(migrated_url) as connection:
        # A growth that is noted admits no other number any more.
        assert connection.execute("SELECT shards FROM deployment").fetchone() == (4,)
    # The copy of the day before is worth more than one of nothing.
    assert (tmp_path / "kept.jsonl").read_text() == copy


def test_a_partition_that_is_none_is_not_said_to_be_well(run):
    result = run(["positions", "settle", "--topic", "signals", "--partition", "99", "--yes"])
    assert "signals has no partition 99" in says_it(result)
