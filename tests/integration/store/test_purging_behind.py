"""What the database does not know yet may say that pages which look gone are there again."""

import asyncio
import uuid

import psycopg
import pytest
from click.testing import CliRunner
from store_contents import NOW, SHARDS, fill, urls_of_shard
from workers import settings_for

from services.cli import applied, erasing
from services.cli.main import main
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.store.page_status import GONE

(PAGE,), (OTHER,) = urls_of_shard(0, 1), urls_of_shard(1, 1)
HOST, OTHER_HOST = identify(PAGE).host, identify(OTHER).host


async def published(settings, outcome):
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_for_host(CRAWL_OUTCOMES, HOST, outcome)
    await publisher.flush()
    await publisher.stop()


@pytest.fixture
def purge(store, local_broker, monkeypatch):
    """A function that erases what is gone; a crawl that found a page there again is not applied."""
    prefix = f"behind-{uuid.uuid4().hex[:8]}"
    fill(store, [PAGE, OTHER])
    with psycopg.connect(store) as connection:
        connection.execute("UPDATE pages SET status = %s, last_attempt_at = %s", (GONE, NOW))
    outcome = CrawlOutcome(PAGE, NOW + 1, result="changed")
    settings = settings_for(local_broker.bootstrap_servers, prefix, partitions=SHARDS)
    asyncio.run(published(settings, outcome))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", local_broker.bootstrap_servers)
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", f"{prefix}-")
    monkeypatch.setenv("FRESHET_PARTITIONS", str(SHARDS))
    monkeypatch.setenv("DATABASE_URL", store)
    monkeypatch.setattr(applied, "APPLIED_SECONDS", 0.1)
    monkeypatch.setattr(applied, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 0.1)
    return lambda *options: CliRunner().invoke(main, ["pages", "purge", "--yes", *options])


def test_nothing_is_erased_that_a_crawl_may_have_found_there_again(purge, store):
    refused = purge()
    assert refused.exit_code == 2
    assert "1 records are not applied yet (crawl-outcomes)" in refused.output
    assert "start estimators first" in refused.output
    assert purge("--host", HOST).exit_code == 2

    # Of another shard nothing is behind: it is told to its estimator, of which there is none.
    goes_on = purge("--host", OTHER_HOST)
    assert "no estimator applies page-updates" in goes_on.output

    with psycopg.connect(store) as connection:
        connection.execute(
            "INSERT INTO stream_positions VALUES ('estimator', 'crawl-outcomes', %s, 1), "
            "('estimator', 'page-updates', %s, 1)",
            (shard_of(HOST, SHARDS), shard_of(OTHER_HOST, SHARDS)),
        )
    assert "no estimator applies page-updates" in purge().output
