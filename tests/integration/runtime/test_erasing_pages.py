"""Pages and hosts leave the database for good while the workers run, by the operators' commands."""

import asyncio
import json
import signal
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from urllib.parse import quote

import psycopg
import pytest
from click.testing import CliRunner
from workers import settings_for, worker

from services.cli.kafka import last_records
from services.cli.main import main
from shared.contracts.identity import host_id_of, identify, shard_of
from shared.contracts.messages import (
    Allotment,
    CrawlOutcome,
    HostLimit,
    Multipliers,
    PageSignal,
    PageUpdate,
)
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    DEAD_LETTERS,
    HOST_LIMITS,
    MULTIPLIERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
)
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.store.positions import ESTIMATOR, read_applied

SHARDS = 2
BEGAN = time.time() - 1000.0
PRIVATE = [f"https://private.example/{number}" for number in range(12)]
OTHERS = [f"https://other.example/{number}" for number in range(12)]
REMOVED = OTHERS[:5]


@pytest.fixture
async def settings(local_broker, migrated_database, monkeypatch):
    database_url = await asyncio.to_thread(migrated_database, SHARDS)
    prefix = f"erasing-{uuid.uuid4().hex[:8]}"
    settings = settings_for(
        local_broker.bootstrap_servers,
        prefix,
        database_url=database_url,
        partitions=SHARDS,
        operator="anna",
    )
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": local_broker.bootstrap_servers,
        "DATABASE_URL": database_url,
        "FRESHET_TOPIC_PREFIX": f"{prefix}-",
        "FRESHET_PARTITIONS": str(SHARDS),
        "FRESHET_OPERATOR": "anna",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    await ensure_topics(settings)
    return settings


class Crowd:
    """Operators, crawlers and pingers; it waits until the estimator has applied what they say."""

    def __init__(self, settings, publisher):
        self._settings, self._publisher = settings, publisher

    async def say(self, topic, *messages):
        ends = {}
        for message in messages:
            host = message.host if isinstance(message, HostLimit) else identify(message.url).host
            told = await (await self._publisher.send_for_host(topic, host, message))
            ends[topic.name, told.partition] = told.offset + 1
        url = self._settings.database_url.get_secret_value()
        async with asyncio.timeout(60):
            while True:
                found = await asyncio.to_thread(read_applied, url, ESTIMATOR, range(SHARDS))
                if all(found.get(place, 0) >= end for place, end in ends.items()):
                    return
                await asyncio.sleep(0.05)


async def freshet(*arguments):
    def run():
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    # As commands start a loop of their own.
    return await asyncio.to_thread(run)


def traces(settings, urls):
    """How many rows of the tables are about pages."""
    page_ids = [identify(url).page_id for url in urls]
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return {
            table: connection.execute(
                f"SELECT count(*) FROM {table} WHERE page_id = ANY(%s)", (page_ids,)
            ).fetchone()[0]
            for table in ("pages", "page_urls", "observations")
        }


KILLED = """
import os, signal
from services.cli import erasing
from services.cli.main import main
from shared.store import purging

purging.URLS_AT_ONCE = 5
erase, parts = erasing.Eraser.erase, []

async def erase_once(self, pages, **more):
    if parts:
        os.kill(os.getpid(), signal.SIGKILL)
    parts.append(pages)
    return await erase(self, pages, **more)

erasing.Eraser.erase = erase_once
main(["hosts", "erase", "private.example", "--yes"])
"""


async def erased_and_killed():
    """The host's erasure ends with the first five pages."""
    command = [sys.executable, "-c", KILLED]
    killed = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


async def check_noted(would_erase):
    """Of what was stopped half-way, too, it is known who began it, and what was watched then."""
    watched = {name: urls for name, urls in would_erase.items() if name != "pages"}
    # A subscription stands there until its hub has heard that nobody wants it.
    left = watched | {"sites": [], "sources": []}
    changes = await freshet("changes", "--json")
    assert {one["who"] for one in changes} == {"anna"}
    assert [(one["about"], one["host"], one["change"]) for one in changes] == [
        ("pages", None, {"erases": "both", "days": 0.001}),
        ("pages", None, {"erased": 5}),
        ("host", "private.example", {"erases": 12} | watched),
        ("host", "private.example", {"erases": 7} | left),
        ("host", "private.example", {"erased": 7}),
    ]


NOTHING = {"pages": 0, "page_urls": 0, "observations": 0}


async def until_unknown(scheduler, urls):
    """Wait until a scheduler has forgotten pages."""
    async with asyncio.timeout(60):
        for url in urls:
            while (await scheduler.get(f"/pages?url={quote(url, safe='')}"))[0] != 404:
                await asyncio.sleep(0.05)


async def lives(crowd):
    """Pages are added, crawled and signalled; some of them are removed."""
    await crowd.say(PAGE_UPDATES, *(PageUpdate("upsert", u, updated_at=BEGAN) for u in ALL))
    for number, result in enumerate(("changed", "unchanged", "changed"), start=1):
        at = BEGAN + 10 * number
        await crowd.say(CRAWL_OUTCOMES, *(CrawlOutcome(u, at, result=result) for u in ALL))
    pages = map(identify, PRIVATE)
    await crowd.say(
        PAGE_SIGNALS, *(PageSignal(p.page_id, p.url, p.host, "cms", BEGAN + 35) for p in pages)
    )
    await crowd.say(HOST_LIMITS, HostLimit("private.example", 0.25))
    gone = (PageUpdate("remove", u, updated_at=BEGAN + 40) for u in REMOVED)
    await crowd.say(PAGE_UPDATES, *gone)


ALL = [*PRIVATE, *OTHERS]


async def late(crowd, urls):
    """What is still under way of pages: crawls, signals, and updates of before."""
    now = time.time()
    await crowd.say(CRAWL_OUTCOMES, *(CrawlOutcome(u, now, result="changed") for u in urls))
    pages = map(identify, urls)
    await crowd.say(
        PAGE_SIGNALS, *(PageSignal(p.page_id, p.url, p.host, "cms", now) for p in pages)
    )
    await crowd.say(PAGE_UPDATES, *(PageUpdate("upsert", u, updated_at=BEGAN + 50) for u in urls))


def watch(settings):
    """A site of the host, and a subscription to a feed of it."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute(
            "INSERT INTO watched_sites (site, hosts, include, exclude) VALUES "
            "('https://private.example/', '{private.example}', '{}', '{}'), "
            "('https://other.example/', '{other.example,private.example}', '{}', '{}')"
        )
        connection.execute(
            "INSERT INTO watched_sources (url, site, host, source, found_by) VALUES "
            "('https://private.example/map.xml', 'https://other.example/', 'private.example', "
            "'sitemap', 'robots')"
        )
        connection.execute(
            "INSERT INTO websub_subscriptions (id, topic, secret, state) "
            "VALUES ('1', 'https://private.example/feed', 's', 'active')"
        )


def watched(settings):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        queries = (
            "SELECT site, hosts FROM watched_sites",
            "SELECT url FROM watched_sources",
            "SELECT state FROM websub_subscriptions",
        )
        return [connection.execute(query).fetchall() for query in queries]


@pytest.mark.long
async def test_pages_and_a_host_leave_for_good_while_the_workers_run(settings, tmp_path):
    publisher = Publisher(settings)
    await publisher.start()
    crowd = Crowd(settings, publisher)
    with ExitStack() as running:
        running.enter_context(worker("estimator", settings, tmp_path))
        scheduler = running.enter_context(worker("scheduler", settings, tmp_path))
        now = time.time()
        shares = [Allotment(shard, 1 / SHARDS) for shard in range(SHARDS)]
        plan = Multipliers(1, now, now, 1e6, 0.0, 0.0, shares)
        await publisher.send_global(MULTIPLIERS, plan)
        await lives(crowd)
        await scheduler.ready()

        # Pages that were removed, once they have been for long enough.
        options = ("--only", "removed", "--dry-run", "--json")
        assert await freshet("pages", "purge", "--days", "1", *options) == {"would_erase": 0}
        assert await freshet("pages", "purge", "--days", "0.001", *options) == {"would_erase": 5}
        done = await freshet("pages", "purge", "--days", "0.001", "--yes", "--json")
        assert (done["pages"], done["observations"]) == (5, 10)
        assert any("page-updates" in line for line in done["remains"])
        assert traces(settings, REMOVED) == NOTHING
        await late(crowd, REMOVED)
        assert traces(settings, REMOVED) == NOTHING
        await until_unknown(scheduler, REMOVED)
        assert traces(settings, OTHERS[5:]) == {"pages": 7, "page_urls": 7, "observations": 14}

        # A host.
        watch(settings)
        counted = await freshet("hosts", "erase", "private.example", "--dry-run", "--json")
        assert counted["would_erase"]["pages"] == 12
        assert counted["would_erase"]["subscriptions"] == ["https://private.example/feed"]
        await erased_and_killed()
        assert traces(settings, PRIVATE)["pages"] == 7
        done = await freshet("hosts", "erase", "private.example", "--yes", "--json")
        assert (done["pages"], done["observations"]) == (7, 24)
        await until_unknown(scheduler, PRIVATE)
        assert traces(settings, PRIVATE) == NOTHING
        assert watched(settings) == [
            [("https://other.example/", ["other.example"])],
            [],
            [("unwanted",)],
        ]
        await late(crowd, [*PRIVATE, "https://private.example/never-heard-of"])

        # A scheduler that starts now reads it all again.
        scheduler.stop()
        again = running.enter_context(worker("scheduler", settings, tmp_path))
        await again.ready()
        await until_unknown(again, [*PRIVATE, *REMOVED])
        assert (await again.get(f"/pages?url={quote(OTHERS[-1], safe='')}"))[0] == 200
    assert traces(settings, PRIVATE) == NOTHING
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        host = host_id_of("private.example")
        query = "SELECT count(*) FROM hosts WHERE host_id = %s"
        assert connection.execute(query, (host,)).fetchone() == (0,)
    assert await last_records(settings, DEAD_LETTERS, 10) == []
    await check_noted(counted["would_erase"])
    await publisher.stop()


def names_in_one_shard():
    """A host, and that of https:// on port 80 there: who mixes them up changes the other one."""
    names = (f"host-{number}.example" for number in range(99))
    return next(
        (name, f"{name}:80")
        for name in names
        if shard_of(name, SHARDS) == shard_of(f"{name}:80", SHARDS)
    )


@pytest.mark.slow(10)
async def test_a_host_on_the_port_of_the_other_scheme_is_erased_and_no_other(settings, tmp_path):
    host, elsewhere = names_in_one_shard()
    its, others = ([f"https://{name}/{n}" for n in range(3)] for name in (elsewhere, host))
    publisher = Publisher(settings)
    await publisher.start()
    crowd = Crowd(settings, publisher)
    with worker("estimator", settings, tmp_path):
        pages = (PageUpdate("upsert", url, updated_at=BEGAN) for url in (*its, *others))
        await crowd.say(PAGE_UPDATES, *pages)
        await freshet("hosts", "limit", elsewhere, "0.25/s", "--json")
        await crowd.say(HOST_LIMITS, HostLimit(host, 0.5))
        for name, rate in ((host, 0.5), (elsewhere, 0.25)):
            shown = await freshet("hosts", "show", name, "--json")
            assert (shown["host"], shown["max_crawls_per_second"]) == (name, rate)

        done = await freshet("hosts", "erase", elsewhere, "--yes", "--json")
        assert done["pages"] == 3
        assert traces(settings, its) == NOTHING
        assert traces(settings, others)["pages"] == 3
        shown = await freshet("hosts", "show", host, "--json")
        assert shown["max_crawls_per_second"] == 0.5
    again = CliRunner().invoke(main, ["hosts", "erase", elsewhere, "--yes"])
    assert again.exit_code == 2
    assert f"write {host} if" in again.output
    assert await last_records(settings, DEAD_LETTERS, 10) == []
    await publisher.stop()
