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

from shared.contracts.codec import decode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, HostLimit, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_UPDATES
from shared.rules.host_rules import HostRules
from shared.runtime.kafka import make_consumer, topic_partitions
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

    async def say(self, *limits):
        """Messages of `host-limits`; None: a tombstone of the host of the one before."""
        publisher = Publisher(self.settings)
        await publisher.start()
        host = ""
        for limit in limits:
            host = host if limit is None else limit.host
            if limit is None:
                await publisher.send(HOST_LIMITS, host.encode(), None)
            else:
                await publisher.send_for_host(HOST_LIMITS, host, limit)
        await publisher.flush()
        await publisher.stop()

    async def rules(self):
        """Of each host, as they are for a worker that reads all of `host-limits`."""
        found = {}
        consumer = make_consumer(self.settings)
        await consumer.start()
        try:
            partitions = (await topic_partitions(self.settings, [HOST_LIMITS]))[HOST_LIMITS.name]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            left = await consumer.end_offsets(partitions)
            while left:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        taken(found, record.key.decode(), record.value)
                left = {tp: n for tp, n in left.items() if await consumer.position(tp) < n}
        finally:
            await consumer.stop()
        return found

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


def taken(rules, host, value):
    """Let a message of a host change its rules; a tombstone ends them."""
    rules[host] = rules.get(host, HostRules())
    if value is None:
        del rules[host]
    else:
        rules[host].take(decode(HostLimit, value))


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


async def test_each_rule_of_a_host_is_in_the_copy_and_is_set_again_by_itself(
    local_broker, database_url, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    ours = Installation(
        settings_for(
            local_broker.bootstrap_servers,
            f"rule-{uuid.uuid4().hex[:8]}",
            database_url=database_url,
        ),
        monkeypatch,
    )

    async def run(*arguments):
        said = await asyncio.to_thread(freshet, *arguments, "--json")
        return list(json.loads(said).values())

    await asyncio.to_thread(freshet, "migrate")
    await asyncio.to_thread(freshet, "topics", "ensure")
    await run("hosts", "limit", "a.example", "0.5/s", "--open", "2")
    await ours.say(
        HostLimit("a.example", only="crawl-delay", crawl_delay_seconds=4.0),
        # As senders of before say it; then the block is taken back, and the limit is not.
        HostLimit("b.example", 2.0, blocked_until=2e9),
        HostLimit("b.example", only="block"),
        HostLimit("c.example", only="open", max_open_requests=3),
        None,
    )
    rules = {
        "a.example": HostRules(limit=0.5, most_open=2, crawl_delay=4.0),
        "b.example": HostRules(limit=2.0),
    }
    assert await ours.rules() == rules
    assert await run("backup", "save", "copy.jsonl") == [0, 0, 5]

    await run("hosts", "limit", "a.example", "1/s")
    await run("hosts", "block", "b.example")
    assert await run("backup", "restore", "copy.jsonl") == [0, 3, 2]
    assert await run("backup", "restore", "copy.jsonl", "--overwrite") == [2, 3, 0]
    assert await ours.rules() == rules

    ours.at(ours.settings.model_copy(update={"topic_prefix": f"new-{uuid.uuid4().hex[:8]}-"}))
    await asyncio.to_thread(freshet, "topics", "ensure")
    assert await run("backup", "restore", "copy.jsonl") == [5, 0, 0]
    assert await ours.rules() == rules


async def test_a_copy_of_before_is_restored(local_broker, database_url, monkeypatch, tmp_path):
    """It has one line a host, which may be of both rules that there were."""
    monkeypatch.chdir(tmp_path)
    ours = Installation(
        settings_for(
            local_broker.bootstrap_servers, f"old-{uuid.uuid4().hex[:8]}", database_url=database_url
        ),
        monkeypatch,
    )
    messages = [
        '{"host":"a.example","max_crawls_per_second":2.0,"blocked_until":2e9}',
        '{"host":"b.example","max_open_requests":2,"only":"open"}',
    ]
    lines = [
        f'{{"topic":"host-limits","key":"{host}","message":{message}}}'
        for host, message in zip(("a.example", "b.example"), messages, strict=True)
    ]
    head = '{"freshet_backup":1,"saved_at":1.7e9}'
    (tmp_path / "copy.jsonl").write_text("\n".join([head, *lines, ""]))

    def told():
        freshet("migrate")
        freshet("topics", "ensure")
        freshet("hosts", "limit", "a.example", "3/s")
        kept = json.loads(freshet("backup", "restore", "copy.jsonl", "--json"))
        again = json.loads(freshet("backup", "restore", "copy.jsonl", "--overwrite", "--json"))
        return [list(answer.values()) for answer in (kept, again)]

    assert await asyncio.to_thread(told) == [[2, 0, 1], [1, 2, 0]]
    assert await ours.rules() == {
        "a.example": HostRules(limit=2.0, blocked_until=2e9),
        "b.example": HostRules(most_open=2),
    }
