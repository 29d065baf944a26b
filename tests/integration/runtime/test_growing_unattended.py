"""Where no scheduler runs, or topics have grown already, shards are split once estimators have
applied all."""

import asyncio
import uuid

import psycopg
import pytest
from click.testing import CliRunner

from migrations.upgrade import migrate
from services.cli import applied, growth
from services.cli.main import main
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, HostLimit, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_UPDATES
from shared.runtime.growing import add_partitions
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import load_settings
from shared.store import splitting
from shared.store.connection import connect
from shared.store.growth import begin_growth
from shared.store.layout import fetch_layout
from shared.store.splits import hold, take_over

BEFORE, AFTER = 2, 4
HOST = "host-1.example"
URL = f"https://{HOST}/a"


@pytest.fixture
async def settings(local_broker, database_url, monkeypatch):
    settings = load_settings(
        kafka_bootstrap_servers=local_broker.bootstrap_servers,
        database_url=database_url,
        topic_prefix=f"t{uuid.uuid4().hex}.",
        partitions=BEFORE,
    )
    for name, value in {
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "DATABASE_URL": database_url,
        "FRESHET_TOPIC_PREFIX": settings.topic_prefix,
        "FRESHET_PARTITIONS": str(BEFORE),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(applied, "APPLIED_SECONDS", 0.1)
    await asyncio.to_thread(migrate, database_url, BEFORE)
    await ensure_topics(settings)
    return settings


def grow(*options):
    options = options or ("--unattended", "--wait-seconds", "0")
    at_once = ("--yes", "--known-seconds", "0")
    return CliRunner().invoke(main, ["shards", "grow", str(AFTER), *at_once, *options])


def apply_all(database_url, topics=(PAGE_UPDATES, CRAWL_OUTCOMES)):
    """As an estimator would say that it has."""
    with psycopg.connect(database_url) as connection:
        for topic in topics:
            connection.execute(
                "INSERT INTO stream_positions (consumer, topic, partition, next_offset) "
                "VALUES ('estimator', %s, %s, 1)",
                (topic.name, shard_of(HOST, BEFORE)),
            )


def have_taken(database_url, shards):
    """Schedulers have loaded shards."""
    with connect(database_url, "scheduler", autocommit=True) as connection:
        take_over(connection, shards, "a scheduler")


def hold_what_is_asked(database_url, parent):
    with connect(database_url, "scheduler", autocommit=True) as connection:
        hold(connection, parent)


@pytest.mark.slow(2)
async def test_what_estimators_have_not_applied_is_waited_for(settings):
    """As after a dump of before a growth was restored: the topics have what came since."""
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_for_host(PAGE_UPDATES, HOST, PageUpdate("upsert", URL))
    await publisher.send_for_host(CRAWL_OUTCOMES, HOST, CrawlOutcome(URL, 1.7e9, result="changed"))
    await publisher.stop()

    refused = await asyncio.to_thread(grow)
    assert refused.exit_code == 2
    assert "2 records are not applied yet (crawl-outcomes, page-updates)" in refused.output
    assert "start estimators first" in refused.output
    database_url = settings.database_url.get_secret_value()
    assert fetch_layout(database_url) == Layout.of(BEFORE)

    apply_all(database_url)
    grown = await asyncio.to_thread(grow)
    assert grown.exit_code == 0, grown.output
    assert fetch_layout(database_url) == Layout(AFTER, BEFORE, frozenset(range(BEFORE)))


@pytest.mark.slow(2)
async def test_after_a_dump_of_before_was_restored_it_waits_first_until_all_is_applied(settings):
    """Though schedulers run: they wait for pages and limits alone."""
    database_url, running = settings.database_url.get_secret_value(), ("--wait-seconds", "0")
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_for_host(PAGE_UPDATES, HOST, PageUpdate("upsert", URL))
    await publisher.send_for_host(CRAWL_OUTCOMES, HOST, CrawlOutcome(URL, 1.7e9, result="changed"))
    await publisher.stop()
    await add_partitions(settings, AFTER)

    refused = await asyncio.to_thread(grow, *running)
    assert refused.exit_code == 2
    assert "2 records are to be applied before (crawl-outcomes, page-updates)" in refused.stderr
    assert "2 records are not applied yet" in refused.stderr
    assert "start estimators first" in refused.stderr
    assert fetch_layout(database_url) == Layout.of(BEFORE)

    growing = asyncio.create_task(asyncio.to_thread(grow, "--wait-seconds", "20"))
    await asyncio.sleep(1.0)
    assert fetch_layout(database_url) == Layout.of(BEFORE)
    have_taken(database_url, range(BEFORE, AFTER))
    apply_all(database_url)
    while fetch_layout(database_url).split != set(range(BEFORE)):
        for parent in range(BEFORE):
            hold_what_is_asked(database_url, parent)
        await asyncio.sleep(0.05)
    grown = await growing
    assert grown.exit_code == 0, grown.output
    assert fetch_layout(database_url) == Layout(AFTER, BEFORE, frozenset(range(BEFORE)))


@pytest.mark.slow(2)
async def test_a_growth_that_was_cut_off_goes_on_where_all_is_applied(settings):
    """It waits for what has come since: as it was asked for, or of a dump of amid it."""
    database_url = settings.database_url.get_secret_value()
    begin_growth(database_url, AFTER)
    await add_partitions(settings, AFTER)
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_for_host(CRAWL_OUTCOMES, HOST, CrawlOutcome(URL, 1.7e9, result="changed"))
    await publisher.stop()
    behind = await asyncio.to_thread(grow, "--wait-seconds", "0")
    assert "1 records are not applied yet (crawl-outcomes)" in behind.output
    apply_all(database_url, [CRAWL_OUTCOMES])
    goes_on = await asyncio.to_thread(grow, "--wait-seconds", "0")
    assert "no scheduler has shard" in goes_on.output
    grown = await asyncio.to_thread(grow)
    assert grown.exit_code == 0, grown.output
    assert fetch_layout(database_url) == Layout(AFTER, BEFORE, frozenset(range(BEFORE)))


@pytest.mark.slow(1)
async def test_limits_that_come_before_crawlers_know_of_the_new_partitions_are_applied_before(
    settings, monkeypatch
):
    """Else they would be passed on, behind those that are sent to the new ones since."""
    database_url, let_be_known = settings.database_url.get_secret_value(), splitting.let_be_known

    async def limit():
        publisher = Publisher(settings)
        await publisher.start()
        limit = encode(HostLimit(HOST, 3.0))
        partition = shard_of(HOST, BEFORE)
        await publisher.send(HOST_LIMITS, HOST.encode(), limit, partition=partition)
        await publisher.stop()

    def meanwhile(*arguments):
        let_be_known(*arguments)
        asyncio.run(limit())

    with monkeypatch.context() as late:
        late.setattr(splitting, "let_be_known", meanwhile)
        refused = await asyncio.to_thread(grow)
    assert "1 records are not applied yet (host-limits)" in refused.output
    assert fetch_layout(database_url) == Layout(AFTER, BEFORE, frozenset())
    apply_all(database_url, [HOST_LIMITS])
    assert (await asyncio.to_thread(grow)).exit_code == 0
    assert not fetch_layout(database_url).is_growing


@pytest.mark.slow(1)
async def test_an_estimator_that_works_need_not_stand_still(settings, monkeypatch):
    """Signals may come all the while: what had come when it was asked counts."""
    monkeypatch.setattr(applied, "APPLIED_SECONDS", 60.0)
    database_url, look, looks = settings.database_url.get_secret_value(), applied.places, []

    async def places(of):
        found = await look(of)
        await publisher.send_for_host(CRAWL_OUTCOMES, HOST, outcome)
        await publisher.flush()
        if not looks:
            await asyncio.to_thread(apply_all, database_url)
        looks.append(found)
        return found

    outcome = CrawlOutcome(URL, 1.7e9, result="changed")
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_for_host(PAGE_UPDATES, HOST, PageUpdate("upsert", URL))
    await publisher.send_for_host(CRAWL_OUTCOMES, HOST, outcome)
    await publisher.flush()
    monkeypatch.setattr(applied, "places", places)
    await growth.require_all_applied(settings, lambda *_: None, 0.0)
    await publisher.stop()
    assert len(looks) == 2
