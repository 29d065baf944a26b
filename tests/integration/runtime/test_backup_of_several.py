"""Backup and restore of several databases, by the very commands of the documentation."""

import asyncio
import time
import uuid

import psycopg
import pytest
from click.testing import CliRunner
from documented import blocks, follow, freshet
from workers import PATIENCE_SECONDS, settings_for, worker

from services.cli.main import main
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES
from shared.runtime.publisher import Publisher

SESSION_SECONDS = 6.0
SHARDS = 4
STATE = "page_id, shard, status, importance, crawls, last_crawled_at, last_changed_at, digest"


class Installation:
    """One with two databases, which may be replaced by others."""

    def __init__(self, server, broker, monkeypatch):
        self._server, self._patch = server, monkeypatch
        self._broker, self._prefix = broker, f"several-{uuid.uuid4().hex[:8]}"
        self.urls = [self.empty(), self.empty()]
        monkeypatch.delenv("DATABASE_URL", raising=False)
        for name, value in {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "FRESHET_PARTITIONS": str(SHARDS),
            "FRESHET_KAFKA_SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
            "FRESHET_TOPIC_PREFIX": self.settings.topic_prefix,
        }.items():
            monkeypatch.setenv(name, value)
        self.at(*self.urls)

    def empty(self):
        return self._server.create_database(f"several_{uuid.uuid4().hex}")

    def at(self, home, other):
        """Let other databases be ours."""
        self.urls = [home, other]
        self._patch.setenv("FRESHET_DATABASES", self.databases)
        self._patch.setenv("HOME_URL", home)
        self._patch.setenv("OTHER_URL", other)

    @property
    def databases(self):
        home, other = self.urls
        return f"0-1={home},2-3={other}"

    @property
    def settings(self):
        return settings_for(
            self._broker.bootstrap_servers,
            self._prefix,
            databases=self.databases,
            partitions=SHARDS,
            kafka_session_timeout_seconds=SESSION_SECONDS,
        )

    async def publish(self, numbers, crawled_at):
        """Pages of many hosts, and what their crawls found."""
        publisher = Publisher(self.settings)
        await publisher.start()
        for number in numbers:
            url = f"https://host-{number % 16}.example/{number}"
            host = identify(url).host
            page = PageUpdate("upsert", url, importance=1.0 + number, updated_at=1.7e9)
            outcome = CrawlOutcome(url, crawled_at, result="changed")
            await publisher.send_for_host(PAGE_UPDATES, host, page)
            await publisher.send_for_host(CRAWL_OUTCOMES, host, outcome)
        await publisher.flush()
        await publisher.stop()

    async def begin(self):
        """With no page yet."""
        for command in (("migrate",), ("topics", "ensure"), ("bandwidth", "set", "12/s")):
            await asyncio.to_thread(freshet, *command)

    def pages(self):
        """What each database has of its pages."""
        return [_pages(url) for url in self.urls]

    def crawls(self):
        return sum(page[4] for pages in self.pages() for page in pages)

    async def until(self, condition, process):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not await asyncio.to_thread(condition):
            assert time.monotonic() < deadline, (self.pages(), process.log)
            await asyncio.sleep(0.1)


def _pages(url):
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT {STATE} FROM pages ORDER BY page_id").fetchall()


@pytest.mark.slow(20)
@pytest.mark.long
async def test_one_of_two_databases_is_restored_alone_and_both_together(
    local_broker, postgres_server, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    programs = postgres_server._binaries
    ours = Installation(postgres_server, local_broker, monkeypatch)

    def run(number):
        return follow(blocks("databases.md", "Backup")[number], programs)

    await ours.begin()
    with worker("estimator", ours.settings, tmp_path) as estimator:
        await ours.publish(range(40), 1.7e9 + 1)
        await ours.until(lambda: ours.crawls() == 40, estimator)
        dumped = await asyncio.to_thread(ours.pages)
        await asyncio.to_thread(run, 0)
        await ours.publish(range(20, 60), 1.7e9 + 500)
        await ours.until(lambda: ours.crawls() == 80, estimator)
    wanted = await asyncio.to_thread(ours.pages)
    assert all(0 < len(pages) < 60 for pages in wanted)

    # Only the other one is lost: the home keeps what it has.
    ours.at(ours.urls[0], ours.empty())
    said = await asyncio.to_thread(run, 2)
    assert ours.pages() == [wanted[0], dumped[1]]
    assert "everything can be read on" in said["positions list"]
    await asyncio.sleep(SESSION_SECONDS)  # the broker gives up the member that was stopped
    with worker("estimator", ours.settings, tmp_path) as estimator:
        await ours.until(lambda: ours.pages() == wanted, estimator)

    ours.at(ours.empty(), ours.empty())
    said = await asyncio.to_thread(run, 1)
    assert ours.pages() == dumped
    assert "everything can be read on" in said["positions list"]
    await asyncio.sleep(SESSION_SECONDS)
    with worker("estimator", ours.settings, tmp_path) as estimator:
        await ours.until(lambda: ours.pages() == wanted, estimator)

    ours.at(*reversed(ours.urls))
    refused = await asyncio.to_thread(CliRunner().invoke, main, ["migrate"])
    assert refused.exit_code != 0
    assert "do not move from one database to another" in refused.output
