"""`freshet positions`: people look at a broken stream, and say how to go on."""

import asyncio
import json
import time
import uuid

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from click.testing import CliRunner
from workers import settings_for, variables_of, worker

from services.cli.main import main
from services.discoverer.worker import GROUP as DISCOVERERS
from services.ingester.reading import GROUP as INGESTERS
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES, SIGNALS
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher

SESSION_SECONDS = 6.0


@pytest.fixture
async def prepared(migrated_url, monkeypatch):
    """Makes the settings of a deployment on a broker, for workers and commands alike."""

    async def prepare(broker):
        prefix = f"pos-{uuid.uuid4().hex[:8]}"
        settings = settings_for(
            broker.bootstrap_servers,
            prefix,
            database_url=migrated_url,
            kafka_session_timeout_seconds=SESSION_SECONDS,
        )
        for name, value in variables_of(settings).items():
            monkeypatch.setenv(name, value)
        await ensure_topics(settings)
        return settings

    return prepare


async def freshet(*arguments):
    return await asyncio.to_thread(CliRunner().invoke, main, ["positions", *arguments])


async def listed(*arguments):
    result = await freshet("list", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


async def publish_pages(settings, numbers):
    publisher = Publisher(settings)
    await publisher.start()
    for number in numbers:
        url = f"https://host-{number % 9}.example/{number}"
        page = PageUpdate("upsert", url, updated_at=1.7e9)
        await publisher.send_for_host(PAGE_UPDATES, identify(url).host, page)
    await publisher.flush()
    await publisher.stop()


def stored(database_url):
    with psycopg.connect(database_url) as connection:
        return connection.execute("SELECT count(*) FROM pages").fetchone()[0]


async def until_stored(database_url, count, process):
    deadline = time.monotonic() + 60
    while await asyncio.to_thread(stored, database_url) != count:
        assert time.monotonic() < deadline, process.log
        await asyncio.sleep(0.1)


async def make_anew(settings, topic):
    name = settings.topic(topic.name)
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka_bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([name])
        made = NewTopic(name, settings.partitions, 1)
        async with asyncio.timeout(30):
            while (await admin.create_topics([made])).topic_errors[0][1]:
                await asyncio.sleep(0.2)
    finally:
        await admin.close()


async def test_a_topic_that_was_made_anew_is_settled_by_people(
    apache_kafka, prepared, migrated_url, tmp_path
):
    settings = await prepared(apache_kafka)
    with worker("estimator", settings, tmp_path) as process:
        await process.ready()
        await publish_pages(settings, range(50))
        await until_stored(migrated_url, 50, process)
        [row] = [r for r in await listed("--topic", "page-updates") if r["partition"] == 0]
        assert (row["state"], row["lag"]) == ("ok", 0)
    assert await listed("--broken") == []

    await make_anew(settings, PAGE_UPDATES)
    await publish_pages(settings, range(100, 250))
    broken = await listed("--broken")
    assert {row["topic"] for row in broken} == {"page-updates"}
    assert {row["state"] for row in broken} == {"other topic"}
    assert len(broken) == settings.partitions
    with worker("estimator", settings, tmp_path) as process:
        await process.not_ready("page-updates is another topic")
        _, exposed = await process.get("/metrics")
        assert b'freshet_stream_broken{topic="page-updates"} 1.0' in exposed
        refused = await freshet("settle", "--topic", "page-updates", "--yes")
        assert refused.exit_code == 1
        assert "stop them all" in refused.output
    partly = await freshet("settle", "--topic", "page-updates", "--partition", "1", "--yes")
    assert partly.exit_code == 2

    async with asyncio.timeout(60):
        while (done := await freshet("settle", "--topic", "page-updates", "--yes")).exit_code:
            assert "stop them all" in done.output
            await asyncio.sleep(0.5)
    assert "are read again" in done.output
    assert await listed("--broken") == []
    with worker("estimator", settings, tmp_path) as process:
        await until_stored(migrated_url, 200, process)
        await process.ready()


async def test_a_log_that_lost_its_end_is_settled_by_people(broker, prepared, migrated_url):
    settings = await prepared(broker)
    await publish_pages(settings, range(50))
    with psycopg.connect(migrated_url) as connection:
        connection.execute(
            "INSERT INTO stream_positions VALUES ('estimator', 'page-updates', 2, 1000)"
        )
    [row] = await listed("--broken")
    assert (row["state"], row["position"], row["lag"]) == ("beyond end", 1000, 0)
    end = row["log_end"]
    done = await freshet("settle", "--topic", "page-updates", "--at", "end", "--yes")
    assert done.exit_code == 0, done.output
    [row] = [r for r in await listed("--topic", "page-updates") if r["partition"] == 2]
    assert (row["state"], row["position"]) == ("ok", end)
    nothing = await freshet("settle", "--topic", "page-updates", "--yes")
    assert "nothing to settle" in nothing.output


@pytest.mark.parametrize(
    ("name", "group", "topic"),
    [("ingester", INGESTERS, SIGNALS), ("discoverer", DISCOVERERS, CRAWL_OUTCOMES)],
    ids=["ingester", "discoverer"],
)
async def test_positions_of_ingesters_and_discoverers_are_kafkas_own(
    broker, prepared, name, group, topic
):
    settings = await prepared(broker)
    # One that never ran has none.
    assert "discoverer" not in {row["consumer"] for row in await listed()}
    tp = TopicPartition(settings.topic(topic.name), 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        group_id=settings.topic_prefix + group,
        enable_auto_commit=False,
    )
    await consumer.start()
    consumer.assign([tp])
    await consumer.commit({tp: 1000})
    await consumer.stop()
    [row] = await listed("--broken")
    assert (row["consumer"], row["state"], row["position"]) == (name, "beyond end", 1000)
    done = await freshet("settle", "--topic", topic.name, "--yes")
    assert done.exit_code == 0, done.output
    of_topic = await listed("--topic", topic.name)
    rows = [r for r in of_topic if (r["consumer"], r["partition"]) == (name, 0)]
    assert (rows[0]["state"], rows[0]["position"]) == ("ok", 0)


async def test_an_unknown_topic_is_said_to_be_one(broker, prepared):
    await prepared(broker)
    result = await freshet("list", "--topic", "nonsense")
    assert result.exit_code == 2
    assert "page-updates" in result.output


async def test_partitions_that_were_read_and_are_not_there_are_not_passed_over(
    local_broker, prepared, migrated_url
):
    """The topics were lost after a growth, and are made anew by settings of before it."""
    await prepared(local_broker)
    with psycopg.connect(migrated_url) as connection:
        connection.execute("UPDATE deployment SET shards = 8, grown_from = 4")
        connection.execute(
            "INSERT INTO stream_positions VALUES ('estimator', 'page-updates', 5, 0)"
        )
    for arguments in (["list", "--broken"], ["settle", "--topic", "page-updates", "--yes"]):
        result = await freshet(*arguments)
        assert result.exit_code == 2
        assert "page-updates has 4 partitions, and others were read" in result.output
        assert "freshet shards grow 8" in result.output
