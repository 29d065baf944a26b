"""Crawlee as a member of the fleet: clients/examples/crawlee on a real broker and a real web."""

import asyncio
import hashlib
import signal
import sys

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from fleet import EXAMPLES, crawler, desk
from website import website

from shared.contracts.topics import CRAWL_REQUESTS

FOLDER = EXAMPLES / "crawlee"
COMMAND = [sys.executable, FOLDER / "crawler.py"]

OF_ONES_OWN = f"""
import asyncio, sys
from datetime import timedelta
sys.path.insert(0, {str(FOLDER)!r})
import crawler

plain = crawler.HttpCrawler
second = timedelta(seconds=1)
limits = {{"navigation_timeout": second, "request_handler_timeout": second}}
crawler.HttpCrawler = lambda **options: plain(
    **options | limits | {{"respect_robots_txt_file": True}}
)

async def handle(context):
    number = context.request.url.rpartition("/")[2]
    if number == "3":
        raise RuntimeError("the disk is full")
    if number == "4":
        await asyncio.sleep(60)
    if number == "5":
        context.request.user_data["digest"] = "what matters"
    await context.add_requests(["/page/6"])

crawler.handle = handle
asyncio.run(crawler.main())
"""
"""A crawler with a handler of its own, little patience, and a look at robots.txt."""


async def unread(settings):
    """How many requests the crawlers have not committed."""
    topic, group = settings.topic(CRAWL_REQUESTS.name), settings.topic("crawlers")
    parts = [TopicPartition(topic, number) for number in range(settings.partitions)]
    options = {"bootstrap_servers": settings.kafka_bootstrap_servers, "enable_auto_commit": False}
    async with AIOKafkaConsumer(group_id=group, **options) as consumer:
        ends = await consumer.end_offsets(parts)
        return sum([ends[part] - (await consumer.committed(part) or 0) for part in parts])


async def publish_rubbish(settings, host):
    options = {"bootstrap_servers": settings.kafka_bootstrap_servers}
    async with AIOKafkaProducer(**options) as producer:
        topic = settings.topic(CRAWL_REQUESTS.name)
        for value in (b"\xff{", b"[]", b'{"request_id": 1}', None):
            await producer.send_and_wait(topic, value, key=host.encode())


@pytest.mark.slow(10)
async def test_crawlee_answers_once_whatever_becomes_of_a_request(local_broker, tmp_path):
    async with website(60) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        await publish_rubbish(fleet.settings, host)
        found, refused, slow, own = [await fleet.ask(site.url(n), host) for n in (0, 3, 4, 5)]
        forbidden = await fleet.ask(f"http://{host}/private/1", host)
        unreadable = await fleet.ask("http://[::bad/page", "bad")
        with crawler([sys.executable, "-c", OF_ONES_OWN], fleet.settings, tmp_path / "log"):
            outcomes = await fleet.outcomes(6)
            site.busy = True
            turned_away = await fleet.ask(site.url(7), host)
            outcomes |= await fleet.outcomes(7)
            site.busy = False
            site.answering.clear()
            hanging = await fleet.ask(site.url(8), host)
            outcomes |= await fleet.outcomes(8)
            site.answering.set()
            await publish_rubbish(fleet.settings, host)
            while await unread(fleet.settings):
                await asyncio.sleep(0.1)

    assert outcomes[found].digest == hashlib.sha256(site.body(0)).hexdigest()
    assert outcomes[own].digest == "what matters"
    for request in (refused, slow):
        assert (outcomes[request].result, outcomes[request].http_status) == ("failed", 200)
    assert (outcomes[forbidden].result, site.seen["/private/1"]) == ("disallowed", 0)
    assert (outcomes[unreadable].result, outcomes[unreadable].http_status) == ("failed", None)
    assert (outcomes[turned_away].result, outcomes[turned_away].http_status) == ("failed", 429)
    assert outcomes[turned_away].retry_after_seconds == 7
    assert (outcomes[hanging].result, outcomes[hanging].http_status) == ("failed", None)
    # Neither retries nor links are crawls of the budget.
    assert all(site.seen[f"/page/{number}"] == 1 for number in (0, 3, 4, 5, 7, 8))
    assert site.seen["/page/6"] == 0


@pytest.mark.slow(10)
async def test_crawlee_finishes_what_is_under_way_and_leaves_the_rest(local_broker, tmp_path):
    async with website(60) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        site.answering.clear()
        first = await fleet.ask(site.url(0), host)
        with crawler(COMMAND, fleet.settings, tmp_path / "log") as process:
            await site.asked("/page/0")
            process.send_signal(signal.SIGTERM)
            while "will finish any remaining" not in (tmp_path / "log").read_text():
                await asyncio.sleep(0.02)
            second = await fleet.ask(site.url(1), host)
            assert await unread(fleet.settings) == 2
            site.answering.set()
            assert await asyncio.to_thread(process.wait, 20) == 0
        assert (await fleet.outcomes(1))[first].digest
        assert await unread(fleet.settings) == 1
        with crawler(COMMAND, fleet.settings, tmp_path / "log"):
            assert (await fleet.outcomes(2))[second].digest

    assert site.seen["/page/0"] == site.seen["/page/1"] == 1


@pytest.mark.slow(15)
@pytest.mark.long
async def test_what_crawlee_has_not_answered_when_killed_is_read_again(local_broker, tmp_path):
    async with website(60) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        answered = await fleet.ask("http://[::bad/page", host)
        held = await fleet.ask(site.url(1), host)
        site.answering.clear()
        with crawler(COMMAND, fleet.settings, tmp_path / "log") as process:
            assert (await fleet.outcomes(1))[answered].result == "failed"
            await site.asked("/page/1")
            assert await unread(fleet.settings) == 1
            process.kill()
            process.wait()
        site.answering.set()
        with crawler(COMMAND, fleet.settings, tmp_path / "log"):
            assert (await fleet.outcomes(2))[held].digest

    assert site.seen["/page/1"] == 2
