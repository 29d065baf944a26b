"""`freshet positions` where several databases do not know of the same topic."""

import asyncio
import json
import uuid

import psycopg
import pytest
from click.testing import CliRunner
from workers import settings_for, variables_of

from migrations.upgrade import migrate
from services.cli.main import main
from services.cli.positions import places
from shared.contracts.databases import Databases
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.kafka import ensure_topics
from shared.store.connection import connect
from shared.store.stream_topics import StoredTopics, set_topic

SHARDS = 4
TOPIC = PAGE_UPDATES.name


@pytest.fixture
async def settings(apache_kafka, postgres_server, monkeypatch):
    """Those of an installation in two databases, for commands too."""
    names = [f"test_{uuid.uuid4().hex}" for _ in range(2)]
    home, other = (postgres_server.create_database(name) for name in names)
    settings = settings_for(
        apache_kafka.bootstrap_servers,
        f"pos-{uuid.uuid4().hex[:8]}",
        databases=f"0-1={home},2-3={other}",
        partitions=SHARDS,
    )
    for name, value in variables_of(settings).items():
        monkeypatch.setenv(name, value)
    for one in Databases.parse(settings.databases.get_secret_value()).each:
        await asyncio.to_thread(migrate, one.url, SHARDS, one.held)
    await ensure_topics(settings)
    yield settings
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def freshet(*arguments, exit_code=0):
    result = await asyncio.to_thread(CliRunner().invoke, main, ["positions", *arguments])
    assert result.exit_code == exit_code, result.output
    assert "are left out: their database at" in result.stderr or not exit_code
    return result.stdout


async def states(exit_code=0):
    """Partition of the topic → state and position."""
    rows = json.loads(await freshet("list", "--json", "--topic", TOPIC, exit_code=exit_code))
    return {row["partition"]: (row["state"], row["position"]) for row in rows}


def note(database, shards, topic_id, position):
    with connect(database.url, "test") as connection:
        set_topic(connection, TOPIC, topic_id)
        for shard in shards:
            connection.execute(
                "INSERT INTO stream_positions VALUES ('estimator', %s, %s, %s)",
                (TOPIC, shard, position),
            )


@pytest.mark.slow(10)
@pytest.mark.parametrize("behind", [0, 1], ids=["the home", "the other"])
async def test_only_the_database_that_knows_an_older_topic_is_settled(settings, behind):
    """It was restored alone, or settling was cut off between the two."""
    databases = Databases.parse(settings.databases.get_secret_value())
    topic_id = next(p.topic_id for p in (await places(settings))[0] if p.topic == TOPIC)
    older, current = databases.each[behind], databases.each[1 - behind]
    its, others = (databases.had_by(one, range(SHARDS)) for one in (older, current))
    await asyncio.to_thread(note, older, its, "made before", 50)
    await asyncio.to_thread(note, current, others, topic_id, 0)

    async def known():
        return (await StoredTopics(databases, "test", writes=True).note({TOPIC: topic_id}))[TOPIC]

    assert await known() == "made before", "an estimator stops"
    before = await states()
    assert [shard for shard, (state, _) in sorted(before.items()) if state != "ok"] == its
    assert "2 partitions settled" in await freshet("settle", "--topic", TOPIC, "--yes")
    assert await states() == dict.fromkeys(range(SHARDS), ("ok", 0))
    assert await known() == topic_id, "it goes on"


@pytest.mark.slow(10)
@pytest.mark.parametrize("away", [0, 1], ids=["the home", "the other"])
async def test_positions_are_shown_and_settled_while_a_database_is_away(
    settings, monkeypatch, away
):
    databases = Databases.parse(settings.databases.get_secret_value())
    for database in databases.each:
        its = databases.had_by(database, range(SHARDS))
        await asyncio.to_thread(note, database, its, "made before", 50)
    there = databases.each[1 - away]
    its, others = (databases.had_by(one, range(SHARDS)) for one in (there, databases.each[away]))
    nobody = "postgresql://nobody@127.0.0.1:1/none"
    urls = [nobody if number == away else one.url for number, one in enumerate(databases.each)]
    with monkeypatch.context() as patch:
        patch.setenv("FRESHET_DATABASES", f"0-1={urls[0]},2-3={urls[1]}")
        assert await states(exit_code=1) == dict.fromkeys(its, ("other topic", 50))
        settling = ("settle", "--topic", TOPIC, "--yes")
        assert await freshet(*settling, "--partition", str(others[0]), exit_code=1) == ""
        assert "2 partitions settled" in await freshet(*settling, exit_code=1)
        assert await states(exit_code=1) == dict.fromkeys(its, ("ok", 0))

    left = dict.fromkeys(others, ("other topic", 50))
    assert await states() == dict.fromkeys(its, ("ok", 0)) | left
    assert "2 partitions settled" in await freshet(*settling)
