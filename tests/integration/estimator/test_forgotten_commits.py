"""A database that has lost its last commits, as a standby has that is promoted too soon."""

import asyncio

import psycopg
import pytest
from estimator_world import Broker, a_day_of_life, contents

from services.estimator.remembering import Remembering
from shared.store.positions import Forgotten

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
