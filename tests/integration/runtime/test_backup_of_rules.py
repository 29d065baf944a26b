"""Rules of hosts are in a copy though their topic was compacted, which leaves one of each host."""

import asyncio
import json
import socket
import time
import uuid

import psycopg
import pytest
from click.testing import CliRunner
from documented import freshet
from workers import settings_for, variables_of

from services.cli.main import main
from shared.contracts.identity import host_id_of, shard_of
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS
from shared.runtime.databases import databases_of
from shared.runtime.publisher import Publisher

SHARDS = 4
HOUR = 3600.0
HOSTS = [f"host-{number}.example" for number in range(8)]
"""Of all shards, and so of both databases."""


class Installation:
    """One in which an estimator has applied what was said of hosts, and the topic is compacted."""

    def __init__(self, settings):
        self.settings = settings
        freshet("migrate")
        freshet("topics", "ensure")

    def holds(self, host, said_at, **columns):
        """Let its database have the rules of a host."""
        columns |= {"shard": shard_of(host, SHARDS), "host_id": host_id_of(host), "host": host}
        columns |= {"limit_updated_at": said_at, "sources": "[]"}
        columns = {"blocked_until": float("-inf")} | columns
        url = databases_of(self.settings).of_host(host).url
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM hosts WHERE host = %s", (host,))
            names, values = ", ".join(columns), ", ".join(["%s"] * len(columns))
            connection.execute(
                f"INSERT INTO hosts ({names}) VALUES ({values})", [*columns.values()]
            )

    def say(self, *limits, is_applied):
        """Write messages; whether the estimator has applied all that there are."""

        async def write():
            publisher = Publisher(self.settings)
            await publisher.start()
            told = [
                await (await publisher.send_for_host(HOST_LIMITS, limit.host, limit))
                for limit in limits
            ]
            await publisher.stop()
            return told

        for written in asyncio.run(write()):
            if is_applied:
                self._applied(written.partition, written.offset + 1)

    def _applied(self, partition, position):
        with psycopg.connect(databases_of(self.settings).of(partition).url) as connection:
            connection.execute(
                "INSERT INTO stream_positions VALUES ('estimator', 'host-limits', %s, %s) "
                "ON CONFLICT (consumer, topic, partition) DO UPDATE SET next_offset = %s",
                (partition, position, position),
            )


@pytest.fixture(params=["one database", "several"])
def ours(request, local_broker, postgres_server, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    count = 1 if request.param == "one database" else 2
    urls = [postgres_server.create_database(f"rules_{uuid.uuid4().hex}") for _ in range(count)]
    where = (
        {"database_url": urls[0]} if count == 1 else {"databases": f"0-1={urls[0]},2-3={urls[1]}"}
    )
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"rules-{uuid.uuid4().hex[:8]}",
        partitions=SHARDS,
        **where,
    )
    for name, value in variables_of(settings).items():
        monkeypatch.setenv(name, value)
    return Installation(settings)


def saved():
    """What a copy has of hosts: host and rule → the message."""
    freshet("backup", "save", "copy.jsonl")
    with open("copy.jsonl") as file:
        lines = [json.loads(line) for line in file.readlines()[1:]]
    return {
        (line["key"], line["message"]["only"]): {
            name: value
            for name, value in line["message"].items()
            if value is not None and name not in ("host", "only")
        }
        for line in lines
    }


def restored(*options):
    return list(json.loads(freshet("backup", "restore", "copy.jsonl", "--json", *options)).values())


def test_a_copy_has_the_rules_that_only_the_database_still_has(ours):
    for host in HOSTS:
        ours.holds(host, 1.7e9, max_crawls_per_second=5.0, crawl_delay=3.0)
        # Of all that was said this is left; the rest is dropped.
        delay = HostLimit(host, only="crawl-delay", crawl_delay_seconds=3.0)
        ours.say(delay, is_applied=True)
    # What no estimator has read yet goes before it.
    ours.say(
        HostLimit(HOSTS[0], 7.0, only="limit"),
        HostLimit(HOSTS[1], only="open", max_open_requests=2),
        is_applied=False,
    )
    rates = {host: 7.0 if host == HOSTS[0] else 5.0 for host in HOSTS}
    assert saved() == (
        {(host, "limit"): {"max_crawls_per_second": rate} for host, rate in rates.items()}
        | {(host, "crawl-delay"): {"crawl_delay_seconds": 3.0} for host in HOSTS}
        | {(HOSTS[1], "open"): {"max_open_requests": 2}}
    )
    assert restored() == [0, 17, 0]


def test_what_was_set_since_is_not_undone_though_only_the_database_has_it(ours):
    changed, back, alike = HOSTS[:3]
    for host in (changed, back, alike):
        ours.holds(host, time.time() - HOUR, max_crawls_per_second=1.0)
    assert len(saved()) == 3
    since = time.time() + 1.0
    ours.holds(changed, since, max_crawls_per_second=5.0)
    ours.holds(back, since)
    ours.holds(alike, since, max_crawls_per_second=1.0, crawl_delay=2.0)
    assert restored() == [0, 1, 2]
    assert saved() == {
        (changed, "limit"): {"max_crawls_per_second": 5.0},
        (alike, "limit"): {"max_crawls_per_second": 1.0},
        (alike, "crawl-delay"): {"crawl_delay_seconds": 2.0},
    }


def test_a_database_of_an_older_moment_than_the_copy_gets_what_the_copy_has(ours):
    changed, unknown = HOSTS[:2]
    for host in (changed, unknown):
        ours.holds(host, time.time() - HOUR, max_crawls_per_second=1.0)
    assert len(saved()) == 2
    ours.holds(changed, time.time() - 2 * HOUR, max_crawls_per_second=5.0)
    ours.holds(unknown, float("-inf"))
    assert restored("--dry-run") == [2, 0, 0]
    assert restored() == [2, 0, 0]
    assert restored() == [0, 2, 0], "they are on the topic"


def test_without_a_database_there_is_no_copy(ours, monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    away = f"postgresql://freshet@127.0.0.1:{port}/freshet"
    freshet("backup", "save", "copy.jsonl")
    if ours.settings.databases is None:
        monkeypatch.setenv("DATABASE_URL", away)
    else:
        home = databases_of(ours.settings).home.url
        monkeypatch.setenv("FRESHET_DATABASES", f"0-1={home},2-3={away}")
    for command, file in (("save", "another.jsonl"), ("restore", "copy.jsonl")):
        done = CliRunner().invoke(main, ["backup", command, file])
        assert done.exit_code == 2
        assert f"127.0.0.1:{port}" in done.output
    assert not (tmp_path / "another.jsonl").exists()
