"""The discoverer as a process: what becomes a page, what does not, and crashes."""

import asyncio
import time

import pytest
from apache import ONCE
from discovered_pages import GONE_PAGE, KNOWN, REMOVED_PAGE
from workers import reader, worker

from shared.contracts.codec import decode, encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import CrawlOutcome, Discovery, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, DEAD_LETTERS, DISCOVERIES, PAGE_UPDATES
from shared.discovery.updates import BEHIND_SECONDS
from shared.runtime.isolation import TooManyBadMessages

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow(25)]

PARTITIONS = 4
PAGE = KNOWN[0]
LAST = "https://b.example/last"


def urls_of(records):
    return [decode(PageUpdate, record.value).url for record in records]


async def publish(publisher, links, **more):
    value = encode(Discovery(PAGE, links, **more))
    await publisher.send(DISCOVERIES, b"a.example", value)


async def until_done(updates, publisher):
    """Read updates until all that was published before is through: partitions are read in turn."""
    for partition in range(PARTITIONS):
        value = encode(Discovery(PAGE, [f"{LAST}/{partition}"]))
        await publisher.send(DISCOVERIES, None, value, partition=partition)
    lasts = {f"{LAST}/{partition}" for partition in range(PARTITIONS)}
    records = await updates.until(lambda got: lasts <= set(urls_of(got)))
    return [record for record in records if LAST not in urls_of([record])[0]]


@ONCE
async def test_links_become_pages_unless_they_are_known_removed_or_not_wanted(
    broker, deploy, tmp_path
):
    publisher = await deploy(broker, discovery_exclude=("*/print/*",), discovery_most_depth=3)
    settings = publisher.settings
    wanted = ["https://a.example/new", "https://a.example/%C3%BC", "https://b.example/2?x=1"]
    not_wanted = [
        *(KNOWN[0], f"{KNOWN[1]}#part", REMOVED_PAGE, GONE_PAGE),
        *("https://c.example/", "https://169.254.169.254/", "mailto:a@a.example", "x" * 3000),
        "https://a.example/print/1",
        "https://a.example/" + "a/" * 10,
    ]
    given = ["HTTPS://A.example:443/x/../new", "https://a.example/ü", wanted[2]]
    bad = [b"rubbish", b'{"url": "https://a.example/", "links": 1}']
    sent_at = time.time()
    await publish(publisher, given + not_wanted, depth=2, found_at=sent_at - 5)
    await publish(publisher, given, depth=0)
    await publish(publisher, ["https://a.example/too-far"], depth=3)
    for value in bad:
        await publisher.send(DISCOVERIES, None, value)
    for result, where in (
        ("redirected", {"redirected_to": "https://b.example/moved"}),
        ("canonical", {"canonical_url": "https://b.example/named"}),
        ("redirected", {"redirected_to": "https://c.example/not-wanted"}),
        ("unchanged", {}),
    ):
        outcome = CrawlOutcome(PAGE, sent_at, "a.example", result=result, **where)
        await publisher.send_for_host(CRAWL_OUTCOMES, "a.example", outcome)
    with worker("discoverer", settings, tmp_path) as process:
        await process.ready()
        async with (
            reader(settings, PAGE_UPDATES) as updates,
            reader(settings, DEAD_LETTERS) as letters,
        ):
            await letters.until(lambda got: len(got) >= len(bad))
            await updates.until(lambda got: len(got) >= len(wanted) + 2)
            await publish(publisher, ["https://a.example/too-far"], depth=0)
            await publish(publisher, [*wanted, *not_wanted], depth=1)
            again = await updates.until(lambda got: len(got) >= len(wanted) + 3)
        _, metrics = await process.get("/metrics")
        assert process.stop() == 0
    found = {message.url: (record, message) for record, message in decoded(again)}
    assert len(found) == len(again)
    assert sorted(found) == sorted(
        [
            *(*wanted, "https://b.example/moved", "https://b.example/named"),
            "https://a.example/too-far",
        ]
    )
    for record, message in found.values():
        host = message.url.split("/")[2]
        assert (record.key, record.partition) == (host.encode(), shard_of(host, PARTITIONS))
        assert (message.op, message.importance, message.max_age_days) == ("upsert", None, None)
        assert sent_at - 6 < message.updated_at + BEHIND_SECONDS < time.time()
    assert abs(found[wanted[2]][1].updated_at + BEHIND_SECONDS - (sent_at - 5)) < 1e-3
    assert sorted(letter.value for letter in letters.records) == sorted(bad)
    for result in ("private", "host", "pattern", "trap", "depth", "no-url", "known"):
        assert f'links_total{{result="{result}"}}'.encode() in metrics
    assert b'freshet_discoverer_taken_links_total{topic="crawl-outcomes"} 3.0' in metrics


def decoded(records):
    return [(record, decode(PageUpdate, record.value)) for record in records]


async def test_a_host_with_its_quota_full_gets_no_more(local_broker, deploy, tmp_path):
    publisher = await deploy(
        local_broker, discovery_most_pages_of_host=10, discovery_redirects=False
    )
    where = {"redirected_to": "https://b.example/not-looked-at"}
    moved = CrawlOutcome(PAGE, time.time(), "a.example", result="redirected", **where)
    await publisher.send_for_host(CRAWL_OUTCOMES, "a.example", moved)
    with worker("discoverer", publisher.settings, tmp_path, alone=True):
        async with reader(publisher.settings, PAGE_UPDATES) as updates:
            for number in range(30):
                await publish(publisher, [f"https://a.example/calendar/{number}"])
                await asyncio.sleep(0.05)
            records = await until_done(updates, publisher)
    assert len(records) == 7
    assert all("/calendar/" in url for url in urls_of(records))


@pytest.mark.long
async def test_two_discoverers_that_are_killed_fill_a_quota_and_let_in_not_one_page_more(
    local_broker, deploy, tmp_path
):
    publisher = await deploy(local_broker, discovery_most_pages_of_host=60, batch_max_messages=5)
    settings, enough = publisher.settings, asyncio.Event()
    other = settings.model_copy(update={"instance": "other"})

    async def send_slowly() -> None:
        number = 0
        while not enough.is_set():
            # On every partition, so that both read links to the same host.
            value = encode(Discovery(PAGE, [f"https://a.example/new/{number % 200}"]))
            await publisher.send(DISCOVERIES, None, value, partition=number % PARTITIONS)
            await asyncio.sleep(0.005)
            number += 1

    sending = asyncio.ensure_future(send_slowly())
    async with reader(settings, PAGE_UPDATES) as updates:
        with (
            worker("discoverer", settings, tmp_path) as one,
            worker("discoverer", other, tmp_path) as two,
        ):
            await updates.until(lambda got: len(got) >= 10)
            one.kill()
            await updates.until(lambda got: len(got) >= 30)
            two.kill()
        with worker("discoverer", settings, tmp_path), worker("discoverer", other, tmp_path):
            await updates.until(lambda got: len(set(urls_of(got))) >= 57)
            enough.set()
            await sending
            await until_done(updates, publisher)
    assert len({url for url in urls_of(updates.records) if LAST not in url}) == 57


async def test_a_crash_loses_no_link_and_what_is_said_twice_is_the_same(
    local_broker, deploy, tmp_path
):
    publisher = await deploy(local_broker)
    settings = publisher.settings
    enough = asyncio.Event()

    async def send_slowly() -> int:
        number = 0
        while not enough.is_set():
            await publish(publisher, [f"https://a.example/new/{number}"])
            await asyncio.sleep(0.01)
            number += 1
        return number

    sending = asyncio.ensure_future(send_slowly())
    async with reader(settings, PAGE_UPDATES) as updates:
        with worker("discoverer", settings, tmp_path) as process:
            await updates.until(lambda got: len(got) >= 50)
            process.kill()
        with worker("discoverer", settings, tmp_path) as process:
            await process.ready()
            enough.set()
            count = await sending
            await updates.until(lambda got: len(set(urls_of(got))) == count)
            assert process.stop() == 0
    said = {(message.url, message.updated_at) for _, message in decoded(updates.records)}
    assert len(said) == count


async def test_links_wait_for_a_database_that_is_away(local_broker, deploy, tmp_path):
    publisher = await deploy(local_broker)
    url = publisher.settings.database_url.get_secret_value()
    away = publisher.settings.model_copy(
        update={"database_url": type(publisher.settings.database_url)(f"{url}-away")}
    )
    async with reader(publisher.settings, PAGE_UPDATES) as updates:
        with worker("discoverer", away, tmp_path) as process:
            await publish(publisher, ["https://a.example/new"])
            await process.not_ready("the database does not answer")
            process.kill()
        assert updates.records == []
        with worker("discoverer", publisher.settings, tmp_path) as process:
            await updates.until(lambda got: urls_of(got) == ["https://a.example/new"])
            await process.ready()


async def test_before_too_many_bad_messages_it_stands_still_and_says_why(
    local_broker, deploy, tmp_path
):
    publisher = await deploy(local_broker, bad_messages_least=20)
    for number in range(40):
        await publisher.send(DISCOVERIES, None, b"rubbish %d" % number, partition=0)
    await publisher.flush()
    with worker("discoverer", publisher.settings, tmp_path) as process:
        await process.not_ready("FRESHET_BAD_MESSAGES_SHARE")
        _, metrics = await process.get("/metrics")
        assert b'freshet_halted{topic="discoveries"} 1.0' in metrics
        assert process.stop() == 0
    assert TooManyBadMessages.__name__ not in process.log


async def test_other_rules_hold_at_once_when_the_settings_are_read_again(
    local_broker, deploy, tmp_path
):
    publisher = await deploy(local_broker)
    file = tmp_path / "freshet.toml"
    file.write_text('discovery_exclude = ["*/shop/*"]\n')
    variables = {"FRESHET_SETTINGS_FILE": str(file)}
    links = [f"https://a.example/{folder}/1" for folder in ("shop", "news")]
    with worker("discoverer", publisher.settings, tmp_path, variables=variables) as process:
        await process.ready()
        async with reader(publisher.settings, PAGE_UPDATES) as updates:
            await publish(publisher, links)
            assert urls_of(await updates.until(lambda got: len(got) >= 1)) == links[1:]
            file.write_text('discovery_exclude = ["*/news/*"]\n')
            process.hang_up()
            while "settings read again" not in process.log:
                await asyncio.sleep(0.05)
            await publish(publisher, ["https://a.example/news/2", *links])
            assert urls_of(await updates.until(lambda got: len(got) >= 2)) == links[::-1]
