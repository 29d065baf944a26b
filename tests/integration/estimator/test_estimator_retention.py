"""Old observations go, a little at a time, and what is not old stays."""

import psycopg
import pytest
from estimator_world import DAY, NOW, URLS, crawl, upsert

from services.estimator.retention import Retention
from shared.runtime.clock import ManualClock
from shared.store import retention, writer
from shared.store.connection import connect

WEEKS_4 = writer.SECONDS_PER_PARTITION


@pytest.fixture
def database(settings):
    with connect(settings.database_url.get_secret_value(), "test") as connection:
        yield connection


def partitions(database):
    rows = database.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits "
        "WHERE inhparent = 'observations'::regclass ORDER BY 1"
    ).fetchall()
    database.commit()
    return [int(row[0].rsplit("_", 1)[1]) for row in rows]


async def test_what_is_too_old_goes_a_little_at_a_time(settings, database):
    for weeks in range(4):
        writer.ensure_observation_partition(database, NOW + weeks * WEEKS_4)
    made = partitions(database)
    clock = ManualClock(NOW + 5 * DAY)
    turn = Retention(settings.model_copy(update={"observations_kept_days": 1.0}), clock).turn
    assert not await turn()
    clock.advance(2 * WEEKS_4)
    assert await turn()
    assert partitions(database) == made[1:]
    assert await turn()
    assert not await turn()
    assert partitions(database) == made[2:]


async def test_a_long_reader_is_not_waited_for_and_two_do_not_drop_at_once(
    settings, database, monkeypatch
):
    monkeypatch.setattr(retention, "LOCK_TIMEOUT", "50ms")
    writer.ensure_observation_partition(database, NOW)
    turn = Retention(settings, ManualClock(NOW + 400 * DAY)).turn
    database.execute("SELECT count(*) FROM observations").fetchone()
    assert not await turn()
    database.rollback()
    database.execute("SELECT pg_advisory_lock(%s)", (retention.RETENTION_LOCK,))
    database.commit()
    assert not await turn()
    assert len(partitions(database)) == 1
    database.execute("SELECT pg_advisory_unlock(%s)", (retention.RETENTION_LOCK,))
    database.commit()
    assert await turn()
    assert len(partitions(database)) == 1


async def test_who_reads_for_long_is_not_in_the_way_where_a_new_partition_begins(
    settings, database, start, kafka
):
    clock = ManualClock(NOW)
    turn = Retention(settings, clock).turn
    for _ in range(14):
        await turn()
        clock.advance(DAY)
    handler = await start(kafka)
    handler._clock = ManualClock(NOW)
    await handler.handle(kafka.batch(upsert(URLS[0]), crawl(URLS[0], NOW + 1)))
    database.execute("SELECT count(*) FROM observations").fetchone()  # as a backup does
    for day in range(1, 14):
        handler._clock.advance(DAY)
        assert await handler.handle(kafka.batch(crawl(URLS[0], NOW + day * DAY))) == set()
    assert partitions(database) == [int(NOW // WEEKS_4), int(NOW // WEEKS_4) + 1]


async def test_no_room_is_made_while_somebody_reads_for_long(settings, database, monkeypatch):
    monkeypatch.setattr(retention, "LOCK_TIMEOUT", "50ms")
    turn = Retention(settings, ManualClock(NOW)).turn
    database.execute("SELECT count(*) FROM observations").fetchone()
    assert not await turn()
    assert partitions(database) == []
    assert not await turn()
    assert len(partitions(database)) == 1


async def test_a_server_that_has_forgotten_a_partition_gets_it_again(
    settings, database, start, kafka
):
    handler = await start(kafka)
    handler._clock = ManualClock(NOW + 2 * DAY)
    await handler.handle(kafka.batch(upsert(URLS[0]), crawl(URLS[0], NOW + 1)))
    await handler.handle(kafka.batch(crawl(URLS[0], NOW + DAY)))
    made = partitions(database)
    # A standby that was promoted without the last things that were done.
    database.execute(f"DROP TABLE observations_{made[-1]}")
    database.commit()
    handler._store.close()
    await handler.handle(kafka.batch(crawl(URLS[0], NOW + 2 * DAY)))
    assert partitions(database) == made
    assert kafka.refused == []


async def test_a_database_that_is_away_is_for_the_next_time(settings):
    away = settings.model_copy(
        update={"database_url": type(settings.database_url)("postgresql://127.0.0.1:1/none")}
    )
    with pytest.raises(psycopg.OperationalError):
        connect(away.database_url.get_secret_value(), "test")
    assert not await Retention(away, ManualClock(NOW)).turn()
