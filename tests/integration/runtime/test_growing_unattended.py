"""Where no scheduler runs shards are split without asking, once estimators have applied all."""

import asyncio
import uuid

import psycopg
import pytest
from click.testing import CliRunner

from migrations.upgrade import migrate
from services.cli import positions
from services.cli.main import main
from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import load_settings
from shared.store.layout import fetch_layout

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
    monkeypatch.setattr(positions, "APPLIED_SECONDS", 0.1)
    await asyncio.to_thread(migrate, database_url, BEFORE)
    await ensure_topics(settings)
    return settings


def grow():
    options = ["--unattended", "--wait-seconds", "0", "--known-seconds", "0"]
    return CliRunner().invoke(main, ["shards", "grow", str(AFTER), *options])


def apply_all(database_url):
    """As an estimator would say that it has."""
    with psycopg.connect(database_url) as connection:
        for topic in (PAGE_UPDATES, CRAWL_OUTCOMES):
            connection.execute(
                "INSERT INTO stream_positions (consumer, topic, partition, next_offset) "
                "VALUES ('estimator', %s, %s, 1)",
                (topic.name, shard_of(HOST, BEFORE)),
            )


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


@pytest.mark.slow(1)
async def test_an_estimator_that_works_need_not_stand_still(settings, monkeypatch):
    """Signals may come all the while: what had come when it was asked counts."""
    monkeypatch.setattr(positions, "APPLIED_SECONDS", 60.0)
    database_url, look, looks = settings.database_url.get_secret_value(), positions.places, []

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
    monkeypatch.setattr(positions, "places", places)
    await positions.require_applied(settings)
    await publisher.stop()
    assert len(looks) == 2
