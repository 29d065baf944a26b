"""A database that has lost its last commits, as a standby has that is promoted too soon."""

import asyncio

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, Broker, a_day_of_life, contents

from services.estimator import lanes
from services.estimator.remembering import Remembering
from shared.contracts.databases import Database
from shared.runtime.clock import ManualClock
from shared.store.positions import Forgotten
from shared.store.snapshot import load_for_learning

TABLES = ("pages", "page_urls", "hosts", "observations", "stream_positions")


def execute(settings, *statements):
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def remember(settings):
    """Note the database as it is now."""
    execute(settings, *(f"CREATE TABLE kept_{table} AS TABLE {table}" for table in TABLES))


def go_back(settings):
    """Everything is as it was noted."""
    for table in TABLES:
        execute(
            settings, f"TRUNCATE {table} CASCADE", f"INSERT INTO {table} SELECT * FROM kept_{table}"
        )


def cut_connections(settings):
    execute(
        settings,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


async def test_what_is_lost_is_applied_again_from_the_topics(settings, start, kafka):
    handler = await start(kafka)
    first, second, third = a_day_of_life(kafka)
    await handler.handle(first)
    remember(settings)
    await handler.handle(second)
    go_back(settings)
    cut_connections(settings)
    forgotten = contents(settings)

    with pytest.raises(Forgotten, match=r"\d+ records that had been applied"):
        await handler.handle(third)

    # Nothing of what the process still knew was written.
    assert contents(settings) == forgotten
    restarted = await start(kafka)
    await restarted.handle(second)
    await restarted.handle(third)
    repaired = contents(settings)
    execute(settings, f"TRUNCATE {', '.join(TABLES)}")
    straight, broker = await start(through := Broker()), through
    for batch in a_day_of_life(broker):
        await straight.handle(batch)
    for table in TABLES[:-1]:
        assert contents(settings)[table] == repaired[table], table


async def test_who_loads_a_shard_anew_sees_that_it_went_back(settings, start, kafka):
    handler = await start(kafka)
    first, second, third = a_day_of_life(kafka)
    await handler.handle(first)
    remember(settings)
    await handler.handle(second)
    await start(kafka)  # takes the shards
    go_back(settings)

    with pytest.raises(Forgotten):
        await handler.handle(third)


async def test_an_idle_estimator_sees_it_as_well(settings, start, kafka):
    handler = await start(kafka)
    first, second, _ = a_day_of_life(kafka)
    await handler.handle(first)
    remember(settings)
    await handler.handle(second)
    looking = Remembering(settings, handler.committed)
    await looking.look()
    go_back(settings)

    with pytest.raises(Forgotten):
        await looking.look()


async def test_a_database_that_is_away_has_forgotten_nothing(settings, start, kafka):
    handler = await start(kafka)
    await handler.handle(a_day_of_life(kafka)[0])
    elsewhere = settings.model_copy(
        update={"database_url": type(settings.database_url)("postgresql://x@/y?host=/nowhere")}
    )

    await Remembering(elsewhere, handler.committed).look()
    stopping = asyncio.Event()
    stopping.set()
    await Remembering(settings, handler.committed).run(stopping)


async def test_how_far_announcements_reach_may_be_forgotten(settings, start, kafka):
    handler = await start(kafka)
    first, second, _ = a_day_of_life(kafka)
    await handler.handle(first)
    await handler.handle(second)
    execute(settings, "UPDATE stream_positions SET next_offset = 0 WHERE topic LIKE '%-parameters'")

    await Remembering(settings, handler.committed).look()


@pytest.fixture
async def lane(settings, kafka, monkeypatch):
    """What is done with a database that is one of several."""
    monkeypatch.setattr(lanes, "PATIENCE_SECONDS", 0.01)

    def make():
        ending = lanes.Ending(asyncio.Event())
        clock = ManualClock(NOW + 30 * DAY)
        return lanes.LaneHandler(settings, clock, kafka, ending, None, lambda: None)

    lane = lanes.Lane(Database(settings.database_url.get_secret_value(), None), make)
    await lane.handler.open()
    assert await lane.load(set(range(SHARDS))) is not None
    yield lane
    await lane.close()
    await asyncio.gather(*lane._ends)


async def hang(lane, shards):
    """The database hangs while shards go elsewhere; and then it does not."""
    hanging = asyncio.Event()
    lane.begin(hanging.wait())
    given_up = lane.handler
    await lane.let_go(shards)
    assert lane.handler is not given_up
    hanging.set()


def of_shards(batch, shards):
    return {topic: {n: parts[n] for n in shards if n in parts} for topic, parts in batch.items()}


async def test_who_takes_over_where_a_database_hung_knows_what_was_committed(settings, kafka, lane):
    first, second, third = a_day_of_life(kafka)
    await lane.handler.handle(first)
    remember(settings)
    await lane.handler.handle(second)
    await hang(lane, {0})
    await hang(lane, {1})
    go_back(settings)  # another server has been promoted

    with pytest.raises(Forgotten):
        await lane.handler.handle(of_shards(third, {2, 3}))
    with pytest.raises(Forgotten):
        await Remembering(settings, lane.committed).look()


async def test_where_nothing_is_lost_who_takes_over_goes_on(settings, kafka, lane):
    first, second, _ = a_day_of_life(kafka)
    await lane.handler.handle(first)
    await hang(lane, {0})
    await hang(lane, {1})
    await lane.handler.handle(of_shards(second, {2, 3}))
    url = settings.database_url.get_secret_value()
    loaded = [load_for_learning(url, number) for number in range(SHARDS)]
    crawled = [bool((part.learning.crawls > 0).any()) for part in loaded]
    assert crawled == [False, False, True, True]


async def test_a_shard_that_could_not_be_loaded_yet_is_not_taken_for_forgotten(
    settings, start, kafka
):
    first, second, _ = a_day_of_life(kafka)
    await (await start(kafka)).handle(first)
    other = psycopg.connect(settings.database_url.get_secret_value())
    other.execute("SELECT 1 FROM shard_owners WHERE shard = 0 FOR UPDATE")
    handler = await start(kafka)
    assert handler.trouble is not None
    cut_connections(settings)
    other.close()
    assert await handler.handle(second) == set()
    assert handler.trouble is None
