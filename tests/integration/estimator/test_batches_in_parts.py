"""A large batch is stored in parts, each with its positions, while the next is applied."""

import threading

import psycopg
import pytest
from estimator_world import (
    DAY,
    FEW,
    NOW,
    SHARDS,
    URLS,
    Broker,
    a_day_of_life,
    crawl,
    empty,
    stored,
    upsert,
)

from services.estimator import handler as handlers
from services.estimator import reading
from services.estimator.handler import EstimatorHandler
from services.estimator.persistence import Store
from services.estimator.reading import READERS
from shared.store.positions import ESTIMATOR, read_applied

MOST = 10**6


@pytest.fixture
def in_parts(monkeypatch):
    """Each shard is a part of its own."""
    monkeypatch.setattr(EstimatorHandler, "least_part", 1)


def commits(monkeypatch, around):
    """Have something done with each commit of a batch."""
    commit = Store.commit
    monkeypatch.setattr(Store, "commit", lambda self, batch: around(commit, self, batch))


async def lived(begin, settings, most):
    """What the database has after a few days."""
    kafka = Broker()
    handler = await begin(kafka, most)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    await handler.close()
    return stored(settings), sorted(kafka.refused), handler.committed()


@pytest.mark.parametrize("most", [MOST, FEW])
async def test_the_database_has_the_same_in_however_many_parts(
    settings, begin, no_refits, monkeypatch, most
):
    whole = await lived(begin, settings, most)
    empty(settings)
    monkeypatch.setattr(EstimatorHandler, "least_part", 1)
    shards = []
    commits(
        monkeypatch,
        lambda commit, *given: (shards.append(set(given[1].owned)), commit(*given)),
    )
    assert await lived(begin, settings, most) == whole
    assert all(len(owned) == 1 for owned in shards)
    assert set.union(*shards) == set(range(SHARDS))


@pytest.mark.parametrize("most", [MOST, FEW])
async def test_the_next_part_is_read_and_applied_while_one_is_stored(
    begin, kafka, no_refits, in_parts, monkeypatch, most
):
    handler = await begin(kafka, most)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    applied, process = [threading.Event() for _ in range(SHARDS)], handlers.process

    def tell(shards, records, *more):
        made = process(shards, records, *more)
        applied[max(records)].set()
        return made

    def when_the_next_is_applied(commit, store, batch):
        assert all(event.wait(60) for event in applied[: max(batch.owned) + 2])
        commit(store, batch)

    monkeypatch.setattr(handlers, "process", tell)
    commits(monkeypatch, when_the_next_is_applied)
    assert await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS))) == set()
    assert all(event.is_set() for event in applied)


async def test_of_a_part_that_fails_nothing_is_lost_and_nothing_done_twice(
    settings, begin, no_refits, in_parts, monkeypatch
):
    expected = await lived(begin, settings, FEW)
    empty(settings)
    turns = iter(range(1000))

    def fail_often(commit, store, batch):
        turn = next(turns)
        if turn % 5 == 2:
            raise psycopg.OperationalError("the server is away")
        commit(store, batch)
        if turn % 5 == 4:
            raise psycopg.OperationalError("it went away, but had committed")

    commits(monkeypatch, fail_often)
    assert await lived(begin, settings, FEW) == expected


async def test_each_part_is_stored_with_its_positions(
    settings, begin, kafka, no_refits, in_parts, monkeypatch
):
    handler = await begin(kafka, FEW)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    before = handler.committed()
    url = settings.database_url.get_secret_value()

    def look(commit, store, batch):
        commit(store, batch)
        found = read_applied(url, ESTIMATOR, set(range(SHARDS)))
        assert {key: found[key] for key in batch.after} == batch.after
        others = {key: at for key, at in before.items() if key[1] > max(batch.owned)}
        assert {key: found[key] for key in others} == others

    commits(monkeypatch, look)
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS)))
    assert handler.committed() != before


async def test_pages_are_never_read_from_another_server(settings, monkeypatch):
    store, lives = Store(settings), iter([*["the primary"] * 3, "the new one"])
    monkeypatch.setattr(reading, "server_of", lambda _: next(lives))
    with pytest.raises(psycopg.OperationalError, match="another server"):
        store.open()
    assert not store.is_open
    monkeypatch.undo()
    store.open()
    assert store.is_open
    store.close()


async def test_who_reads_pages_may_be_cut_off(settings, begin, kafka, no_refits):
    handler = await begin(kafka, FEW)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        cut_off = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'freshet-estimator-reader' AND datname = current_database()"
        ).fetchall()
    assert cut_off == [(True,)] * READERS
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS)))
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        [counted] = connection.execute("SELECT sum(crawls) FROM pages").fetchone()
    assert counted == len(URLS)
