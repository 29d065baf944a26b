"""Commands that are called where the clock is wrong write the broker's time, as workers do."""

import asyncio
import json
import socket
import time
import uuid

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from click.testing import CliRunner
from workers import settings_for, variables_of

from services.cli.kafka import last_records
from services.cli.main import main
from shared.contracts.codec import decode
from shared.contracts.messages import Bandwidth, HostLimit, PageUpdate
from shared.contracts.topics import BANDWIDTH, CLOCK, HOST_LIMITS, PAGE_UPDATES, TOPICS
from shared.runtime.kafka import ensure_topics
from shared.runtime.wall_time import WALL, steady

HOUR = 3600.0
NEAR_SECONDS = 2.0
URL = "https://a.example/1"
SHARDS = 1
"""So that the last record of a topic is easily found."""


real = time.time


def begin_anew():
    """Let the time of this process be that of its machine, as in a new one."""
    offset = time.time() - steady()
    WALL.steer(offset, offset)


@pytest.fixture(params=[HOUR, -HOUR], ids=["fast", "slow"])
def off(request):
    """By how many seconds this machine's clock is ahead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + request.param)
        begin_anew()
        yield request.param
    begin_anew()


@pytest.fixture
def installation(local_broker, migrated_database, monkeypatch, tmp_path):
    """Settings of one whose commands are called here; topic `clock` is not there yet."""
    database_url = migrated_database(SHARDS)
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"times-{uuid.uuid4().hex[:8]}",
        database_url=database_url,
        partitions=SHARDS,
    )
    for name, value in variables_of(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.csv").write_text(f"url,importance\n{URL},1\n")
    asyncio.run(ensure_topics(settings, [topic for topic in TOPICS if topic is not CLOCK]))
    return settings


@pytest.fixture
def ours(installation):
    """As `installation`, and the broker tells its time."""
    asyncio.run(ensure_topics(installation, [CLOCK]))
    return installation


@pytest.fixture
def silent(installation):
    """As `installation`, and the topic `clock` has the times of those who write it."""

    async def make():
        admin = AIOKafkaAdminClient(bootstrap_servers=installation.kafka_bootstrap_servers)
        await admin.start()
        await admin.create_topics([NewTopic(installation.topic(CLOCK.name), 1, 1)])
        await admin.close()

    asyncio.run(make())
    return installation


def run(*arguments):
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def last(settings, topic):
    """The last record of a topic; None: there is none."""
    records = asyncio.run(last_records(settings, topic, 1))
    return records[-1] if records else None


def is_now(moment):
    return moment == pytest.approx(real(), abs=NEAR_SECONDS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("crawl", URL),
        ("pages", "remove", URL),
        ("pages", "max-age", URL, "--days", "3"),
        ("pages", "import", "pages.csv", "--via", "kafka"),
    ],
    ids=" ".join,
)
def test_a_page_is_updated_at_the_brokers_time(ours, off, arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert is_now(decode(PageUpdate, last(ours, PAGE_UPDATES).value).updated_at)


def added_at(settings):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return connection.execute("SELECT first_seen_at, updated_at FROM pages").fetchone()


def test_what_is_copied_is_of_the_brokers_time(ours, off):
    assert json.loads(run("pages", "import", "pages.csv", "--json").stdout)["via"] == "copy"
    assert all(map(is_now, added_at(ours)))


def test_without_a_broker_it_is_of_the_databases_time(ours, off, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{port}")
    done = run("pages", "import", "pages.csv", "--json")
    assert json.loads(done.stdout)["via"] == "copy"
    assert all(map(is_now, added_at(ours)))


def test_budgets_and_limits_are_set_at_the_brokers_time(ours, off):
    assert run("bandwidth", "set", "5/s", "--ramp", "60").exit_code == 0
    assert is_now(decode(Bandwidth, last(ours, BANDWIDTH).value).set_at)
    begin_anew()
    assert run("hosts", "block", "a.example", "--hours", "2").exit_code == 0
    told = last(ours, HOST_LIMITS)
    assert is_now(decode(HostLimit, told.value).blocked_until - 2 * HOUR)
    assert is_now(told.timestamp / 1000)
    begin_anew()
    assert run("backup", "save", "copy.jsonl").exit_code == 0
    with open("copy.jsonl") as file:
        assert is_now(json.loads(file.readline())["saved_at"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("crawl", URL),
        ("pages", "remove", URL),
        ("pages", "import", "pages.csv", "--via", "kafka"),
        ("pages", "purge", "--yes"),
        ("hosts", "erase", "a.example", "--yes"),
        ("bandwidth", "set", "5/s", "--ramp", "60"),
    ],
    ids=" ".join,
)
def test_where_it_is_not_told_what_counts_by_it_is_refused(silent, arguments):
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "freshet topics ensure --fix" in refused.stderr
    assert last(silent, PAGE_UPDATES) is None
    assert last(silent, BANDWIDTH) is None


def test_and_what_must_hold_at_once_goes_on(silent):
    for arguments in (("bandwidth", "set", "5/s"), ("hosts", "block", "a.example")):
        done = run(*arguments)
        assert done.exit_code == 0, done.output
        assert "by this machine's clock" in done.stderr
    assert decode(Bandwidth, last(silent, BANDWIDTH).value).crawls_per_second == 5.0
