"""Backup and restore, by the very commands of the documentation."""

import asyncio
import json
import re
import time
import uuid

import psycopg
import pytest
from documented import blocks, follow, freshet
from workers import settings_for, worker

from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES
from shared.runtime.publisher import Publisher

SESSION_SECONDS = 6.0
STATE = "page_id, status, importance, crawls, last_crawled_at, last_changed_at, digest, signals"


@pytest.fixture
def programs(postgres_server):
    """PostgreSQL's own, of the server's version."""
    return postgres_server._binaries


def commands(section):
    """The only block of commands under a heading."""
    [block] = blocks("backup.md", section)
    return block


class Installation:
    """An installation whose workers tests start, and whose messages they write."""

    def __init__(self, settings, monkeypatch):
        self.settings = settings
        self._patch = monkeypatch
        for name, value in {
            "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
            "FRESHET_PARTITIONS": str(settings.partitions),
            "FRESHET_KAFKA_SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
            "FRESHET_OPERATOR": "ada",
        }.items():
            monkeypatch.setenv(name, value)
        self.at(settings)

    def at(self, settings):
        """Let another database, or other topics, be ours."""
        self.settings = settings
        self._patch.setenv("DATABASE_URL", settings.database_url.get_secret_value())
        self._patch.setenv("FRESHET_TOPIC_PREFIX", settings.topic_prefix)

    async def publish(self, numbers, crawled_at=None):
        """Pages, and what their crawls found if they were crawled."""
        publisher = Publisher(self.settings)
        await publisher.start()
        for number in numbers:
            url = f"https://host-{number % 3}.example/{number}"
            page = PageUpdate("upsert", url, importance=1.0 + number, updated_at=1.7e9)
            await publisher.send_for_host(PAGE_UPDATES, identify(url).host, page)
            if crawled_at is not None:
                outcome = CrawlOutcome(url, crawled_at, result="changed")
                await publisher.send_for_host(CRAWL_OUTCOMES, identify(url).host, outcome)
        await publisher.flush()
        await publisher.stop()

    def pages(self):
        """What the database has of each page."""
        with psycopg.connect(self.settings.database_url.get_secret_value()) as connection:
            return connection.execute(f"SELECT {STATE} FROM pages ORDER BY page_id").fetchall()

    async def until(self, wanted, process):
        """Wait until what the database has is as wanted."""
        deadline = time.monotonic() + 60
        while not wanted(found := await asyncio.to_thread(self.pages)):
            assert time.monotonic() < deadline, (found, process.log)
            await asyncio.sleep(0.1)


def crawled(count):
    return lambda pages: sum(page[3] for page in pages) == count


@pytest.mark.slow(15)
async def test_an_older_moment_is_restored_and_made_good_by_the_topics(
    local_broker, postgres_server, database_url, programs, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"backup-{uuid.uuid4().hex[:8]}",
        database_url=database_url,
        kafka_session_timeout_seconds=SESSION_SECONDS,
    )
    ours = Installation(settings, monkeypatch)
    await asyncio.to_thread(freshet, "migrate")
    await asyncio.to_thread(freshet, "topics", "ensure")
    with worker("estimator", ours.settings, tmp_path) as estimator:
        await ours.publish(range(20), crawled_at=1.7e9 + 1)
        await ours.until(crawled(20), estimator)
        await asyncio.to_thread(freshet, "bandwidth", "set", "12/s")
        await asyncio.to_thread(freshet, "hosts", "limit", "host-1.example", "0.5/s")
        await asyncio.to_thread(freshet, "groups", "limit", "shared.example", "2/s")
        said = await asyncio.to_thread(follow, commands("Back up"), programs)
        assert re.findall(r"\d+", said["backup save"]) == ["1", "1", "1"]

        # What comes after the backup: pages, their crawls, and another budget.
        await ours.publish(range(10, 30), crawled_at=1.7e9 + 500)
        await ours.until(crawled(40), estimator)
    await asyncio.to_thread(freshet, "bandwidth", "set", "30/s")
    wanted = ours.pages()

    again = postgres_server.create_database(f"again_{uuid.uuid4().hex}")
    ours.at(ours.settings.model_copy(update={"database_url": type(settings.database_url)(again)}))
    said = await asyncio.to_thread(follow, commands("Restore"), programs)
    assert len(ours.pages()) == 20, "the dump is of an older moment"
    assert "everything can be read on" in said["positions list"]
    budget = json.loads(await asyncio.to_thread(freshet, "bandwidth", "get", "--json"))
    assert budget["crawls_per_second"] == 30, "what was set since stays"
    await asyncio.sleep(SESSION_SECONDS)  # the broker gives up the member that was stopped
    with worker("estimator", ours.settings, tmp_path) as estimator:
        await ours.until(lambda pages: pages == wanted, estimator)

    # And now the topics are lost too.
    ours.at(ours.settings.model_copy(update={"topic_prefix": f"anew-{uuid.uuid4().hex[:8]}-"}))
    await asyncio.to_thread(freshet, "topics", "ensure")
    await asyncio.to_thread(freshet, "backup", "restore", "freshet-limits.jsonl")
    budget = json.loads(await asyncio.to_thread(freshet, "bandwidth", "get", "--json"))
    assert budget["crawls_per_second"] == 12, "the topic had none"
    broken = json.loads(await asyncio.to_thread(freshet, "positions", "list", "--broken", "--json"))
    # Where brokers give topics ids it is another topic, else a log that ends too soon.
    assert {row["state"] for row in broken} == {"beyond end"}
    await asyncio.to_thread(follow, commands("Where the topics are lost too"), programs)
    found = await asyncio.to_thread(freshet, "positions", "list", "--broken")
    assert "everything can be read on" in found
    with worker("estimator", ours.settings, tmp_path) as estimator:
        await ours.publish(range(30, 35), crawled_at=1.7e9 + 900)
        await ours.until(crawled(45), estimator)

    noted = json.loads(await asyncio.to_thread(freshet, "changes", "--json"))
    assert [(c["who"], c["about"], c["host"]) for c in noted] == [
        ("ada", "budget", None),
        ("ada", "host", "host-1.example"),
        ("ada", "host", "shared.example"),
        ("ada", "backup", None),
    ], "that of the budget of 30/s came after the dump"
    assert noted[0]["change"]["crawls_per_second"] == 12


async def test_a_copy_is_set_again_where_something_is_missing_and_nowhere_else(
    local_broker, database_url, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    settings = settings_for(
        local_broker.bootstrap_servers, f"copy-{uuid.uuid4().hex[:8]}", database_url=database_url
    )
    ours = Installation(settings, monkeypatch)

    def told():
        freshet("migrate")
        freshet("topics", "ensure")
        freshet("hosts", "limit", "a.example", "1/s")
        freshet("hosts", "limit", "b.example", "2/s")
        freshet("backup", "save", "copy.jsonl")
        freshet("hosts", "limit", "b.example", "3/s")
        first = json.loads(freshet("backup", "restore", "copy.jsonl", "--json"))
        would = json.loads(
            freshet("backup", "restore", "copy.jsonl", "--overwrite", "--dry-run", "--json")
        )
        second = json.loads(freshet("backup", "restore", "copy.jsonl", "--overwrite", "--json"))
        third = json.loads(freshet("backup", "restore", "copy.jsonl", "--json"))
        return [list(answer.values()) for answer in (first, would, second, third)]

    assert await asyncio.to_thread(told) == [[0, 1, 1], [1, 1, 0], [1, 1, 0], [0, 2, 0]]
    noted = await asyncio.to_thread(freshet, "changes", "--host", "b.example", "--json")
    rates = [change["change"]["max_crawls_per_second"] for change in json.loads(noted)]
    assert rates == [2, 3]
    assert ours.settings.partitions == 4
