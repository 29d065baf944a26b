"""Messages that make a batch fail every time: found, set aside, and the rest is done once."""

import asyncio

import psycopg
import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError
from estimator_world import DAY, NOW, SHARDS, URLS, a_day_of_life, contents, crawl, upsert

from services.estimator import handler as handling
from services.estimator import processing
from services.estimator.handler import EstimatorHandler
from shared.contracts.identity import identify
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES
from shared.runtime.clock import ManualClock
from shared.runtime.isolation import TooManyBadMessages

REFUSED_IMPORTANCE = 13.0
FACTS = "url, importance, crawls, changes, last_crawled_at, last_signal_at, signal_count, status"


@pytest.fixture
def database(settings):
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        yield connection


def facts(database: psycopg.Connection) -> list:
    query = f"SELECT {FACTS} FROM pages JOIN page_urls USING (shard, page_id) ORDER BY url"
    return database.execute(query).fetchall()


def positions(database: psycopg.Connection) -> dict:
    rows = database.execute("SELECT topic, partition, next_offset FROM stream_positions").fetchall()
    return {(topic, partition): offset for topic, partition, offset in rows}


def refuse_importance(database: psycopg.Connection) -> None:
    database.execute(
        f"ALTER TABLE pages ADD CONSTRAINT unlucky CHECK (importance <> {REFUSED_IMPORTANCE})"
    )


def end_of(kafka, topic: str) -> dict:
    return {key: offset for key, offset in kafka._offsets.items() if key[0] == topic}


async def test_what_the_database_refuses_is_set_aside_and_the_rest_is_done(
    settings, start, kafka, database
):
    refuse_importance(database)
    handler = await start(kafka)
    unlucky = {URLS[3], URLS[40]}
    await handler.handle(
        kafka.batch(
            *(upsert(u, importance=REFUSED_IMPORTANCE if u in unlucky else 2.0) for u in URLS)
        )
    )
    assert [row[0] for row in facts(database)] == sorted(set(URLS) - unlucky)
    assert {row[1] for row in facts(database)} == {2.0}
    assert len(kafka.refused) == 2
    assert all("CheckViolation" in reason and "unlucky" in reason for reason in kafka.refused)
    assert positions(database).items() >= end_of(kafka, PAGE_UPDATES.name).items()
    assert handler.trouble is None


async def test_nothing_is_behind_a_position_before_its_letter_is_with_the_broker(
    settings, start, kafka, database, monkeypatch
):
    """Who dies between the two reads it again."""
    refuse_importance(database)
    handler = await start(kafka)
    await handler.handle(kafka.batch(upsert(URLS[0])))
    before, seen, publish = positions(database), [], kafka.publish

    async def looked_at(announcements, refused):
        if refused:
            seen.append(positions(database))
        return await publish(announcements, refused)

    monkeypatch.setattr(kafka, "publish", looked_at)
    await handler.handle(kafka.batch(upsert(URLS[0], NOW + 1.0, importance=REFUSED_IMPORTANCE)))
    assert len(kafka.refused) == 1
    assert seen == [before]
    assert positions(database) != before


async def test_crawls_and_signals_around_a_refused_one_count_once(settings, start, kafka, database):
    first, second, third = a_day_of_life(kafka)
    handler = await start(kafka)
    await handler.handle(first)
    # Refused from outside the code's knowledge: a trigger on what a crawl of one page writes.
    page_id = identify(URLS[20]).page_id
    database.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not this page'; END $$"
    )
    database.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON pages FOR EACH ROW "
        f"WHEN (NEW.page_id = {page_id} AND NEW.crawls > 1) EXECUTE FUNCTION refuse()"
    )
    await handler.handle(second)
    await handler.handle(third)
    # Of the third batch, both crawls of the page are refused: the second would be its first, too.
    by_url = {row[0]: row for row in facts(database)}
    assert all("not this page" in reason for reason in kafka.refused)
    assert len(kafka.refused) == 2
    assert by_url[URLS[20]][2] == 1
    others = [url for url in URLS[::2] if url != URLS[20]]
    assert {by_url[url][2] for url in others} == {3}
    assert positions(database).items() >= end_of(kafka, CRAWL_OUTCOMES.name).items()
    observations = contents(settings)["observations"]
    assert len(observations) == len(set(observations)) == 2 * len(others)


async def test_an_unforeseen_exception_is_one_messages_fault(
    settings, start, kafka, database, monkeypatch
):
    handler = await start(kafka)
    first, second, _ = a_day_of_life(kafka)
    await handler.handle(first)
    poison = second[CRAWL_OUTCOMES.name]
    shard = max(poison, key=lambda s: len(poison[s]))
    bad_offset = poison[shard][1].offset
    apply = processing.apply_records

    def stumble(where, records, *rest):
        done = apply(where, records, *rest)
        if any(
            record.partition == shard and record.offset == bad_offset
            for record in records.get(CRAWL_OUTCOMES.name, ())
        ):
            raise ZeroDivisionError("nobody thought of this")
        return done

    monkeypatch.setattr(processing, "apply_records", stumble)
    await handler.handle(second)
    assert len(kafka.refused) == 1
    assert "ZeroDivisionError: nobody thought of this" in kafka.refused[0]
    crawled = [row[2] for row in facts(database)]
    assert sum(crawled) == len(URLS) - 1
    # A restart has the same state, though the memory had taken the bad one in several times.
    restarted = await start(kafka)
    await restarted.handle(kafka.batch(*(crawl(url, NOW + 2 * DAY) for url in URLS)))
    assert sum(row[2] for row in facts(database)) == 2 * len(URLS) - 1


async def test_a_refit_that_fails_makes_no_message_bad(settings, start, kafka, monkeypatch):
    def fail(*_):
        raise FloatingPointError("the priors do not converge")

    monkeypatch.setattr(handling, "refit", fail)
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        handler._refits._records = 0.0
        handler._refits.are_due = lambda *_: True
        await handler.handle(batch)
    assert kafka.refused == []
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])


async def test_a_database_that_goes_away_meanwhile_makes_no_message_bad(
    settings, start, kafka, database
):
    refuse_importance(database)
    handler = await start(kafka)
    commit = handler._store.commit
    calls = iter(range(1000))

    def interrupted(*arguments):
        if next(calls) % 2:
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'freshet-estimator' AND datname = current_database()"
            )
        commit(*arguments)

    handler._store.commit = interrupted
    await handler.handle(
        kafka.batch(
            *(upsert(u, importance=REFUSED_IMPORTANCE if u == URLS[7] else 2.0) for u in URLS)
        )
    )
    assert len(set(kafka.refused)) == 1
    assert [row[0] for row in facts(database)] == sorted(set(URLS) - {URLS[7]})


async def test_tables_that_are_not_as_expected_are_no_messages_fault(
    settings, start, kafka, database
):
    handler = await start(kafka)
    database.execute("ALTER TABLE pages RENAME COLUMN importance TO weight")
    with pytest.raises(psycopg.ProgrammingError, match="importance"):
        await handler.handle(kafka.batch(*map(upsert, URLS)))
    assert kafka.refused == []


async def test_too_many_bad_messages_are_not_set_aside(settings, start, kafka, database):
    strict = settings.model_copy(update={"bad_messages_least": 20})
    handler = EstimatorHandler(strict, ManualClock(NOW + 30 * DAY), kafka, asyncio.Event())
    await handler.open()
    await handler.assigned(set(range(SHARDS)))
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    before = contents(settings)
    unknown = [crawl(f"https://host-{n}.example/unknown", NOW + DAY) for n in range(30)]
    with pytest.raises(TooManyBadMessages, match=r"crawl-outcomes.*FRESHET_BAD_MESSAGES_SHARE"):
        await handler.handle(kafka.batch(*unknown))
    assert kafka.refused == []
    assert contents(settings) == before
    await handler.close()


async def test_a_broker_that_is_away_makes_no_message_bad(settings, start, kafka, database):
    handler = await start(kafka)
    publish, failures = kafka.publish, [KafkaTimeoutError(), KafkaConnectionError("gone")]

    async def fail_twice(*arguments):
        done = await publish(*arguments)
        if failures:
            raise failures.pop()
        return done

    kafka.publish = fail_twice
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    assert kafka.refused == []
    assert handler.trouble is None
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])
