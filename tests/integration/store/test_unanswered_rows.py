"""What schedulers write of pages that nobody answers: whose it is, and where it goes."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from store_contents import NOW, fill, urls_of_shard

from shared.contracts.identity import identify
from shared.store.columns import UnansweredNews, UnansweredPages
from shared.store.connection import connect, connect_writer
from shared.store.erasing import ErasedRows, erase_pages
from shared.store.page_status import NEVER
from shared.store.snapshot import load_shard
from shared.store.splits import take_over
from shared.store.unanswered import Silence, read_silence, read_unanswered, write_unanswered

CLAIM = "mine"


@pytest.fixture
def connection(store):
    with connect(store, "test", autocommit=True) as connection:
        take_over(connection, [0, 1, 2], CLAIM)
        yield connection


def pages(ids, requests, at=NOW):
    count = len(ids)
    return UnansweredPages(
        np.array(ids, np.int64),
        np.full(count, requests, np.int16),
        np.full(count, at),
        np.full(count, at + 120.0),
        np.full(count, NEVER),
    )


def news(ids, requests=1, *, shard=0, claim=CLAIM, answered=()):
    return UnansweredNews(shard, claim, pages(ids, requests), np.array(answered, np.int64))


def write(connection, *some):
    with connection.transaction():
        return write_unanswered(connection, some)


def known(connection, shard=0):
    found = read_unanswered(connection, shard)
    return dict(zip(found.page_ids.tolist(), found.requests.tolist(), strict=True))


def test_the_last_news_of_a_page_stand_and_those_that_are_answered_go(connection):
    assert known(connection) == {}
    assert write(connection, news([3, 1, 2]), news([9], shard=2)) == {0, 2}
    write(connection, news([2], 2, answered=[1, 77]))
    assert known(connection) == {2: 2, 3: 1}
    assert (known(connection, 1), known(connection, 2)) == ({}, {9: 1})
    # As after a commit whose answer was lost.
    write(connection, news([2], 2, answered=[1, 77]))
    assert known(connection) == {2: 2, 3: 1}


def test_a_shard_is_loaded_with_all_that_was_written_of_it(connection, store):
    fill(store, urls_of_shard(0, 3))
    write(connection, news([5, 2**62], 7))
    found = load_shard(store, 0).unanswered
    order = np.argsort(found.page_ids)
    for column, expected in zip(found.columns, pages([5, 2**62], 7).columns, strict=True):
        assert column[order].tolist() == expected.tolist()
        assert column.dtype == expected.dtype
    assert load_shard(store, 1).unanswered.page_ids.size == 0


@pytest.mark.parametrize(
    ("last_crawl", "told"),
    [
        (NEVER, Silence(3, NOW + 120.0)),
        (NOW - 50.0, Silence(3, NOW + 120.0)),  # the one that was known then
        (NOW - 20.0, Silence(1, NOW + 120.0)),  # an answer to one before the last
        (NOW, Silence(0, None)),  # and to the last
    ],
)
def test_people_are_told_of_a_page_what_a_scheduler_makes_of_its_row(connection, last_crawl, told):
    row = pages([5, 6], 3)
    row.last_attempt_at[:] = NOW - 50.0
    write(connection, UnansweredNews(0, CLAIM, row, np.empty(0, np.int64)))
    assert read_silence(connection, 0, 5, last_crawl) == told
    assert read_silence(connection, 0, 7, last_crawl) == Silence(0, None)
    assert read_silence(connection, 1, 5, last_crawl) == Silence(0, None)


def test_a_scheduler_that_has_lost_a_shard_writes_nothing_of_it(connection):
    write(connection, news([1, 2], 3))
    take_over(connection, [0], "another's")
    assert write(connection, news([1], 4, answered=[2]), news([8], shard=1)) == {1}
    assert known(connection) == {1: 3, 2: 3}
    assert known(connection, 1) == {8: 1}
    assert write(connection, news([1], 4, claim="another's")) == {0}
    assert known(connection) == {1: 4, 2: 3}


def test_who_takes_a_shard_over_reads_what_was_being_written(connection, store):
    """It waits for a transaction that is under way, or that one comes to nothing."""
    with connect(store, "test") as writer, ThreadPoolExecutor(1) as threads:
        write_unanswered(writer, [news([1], 5)])
        taken = threads.submit(take_over, connection, [0], "another's")
        with connect(store, "test", autocommit=True) as looking:
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            until = time.monotonic() + 4.0
            while looking.execute(waits).fetchone() == (0,) and time.monotonic() < until:
                time.sleep(0.01)
        assert not taken.done()
        writer.commit()
        taken.result()
    assert known(connection) == {1: 5}


def test_nothing_is_kept_of_a_page_that_is_erased(connection, store):
    urls = urls_of_shard(0, 3)
    fill(store, urls)
    ids = [identify(url).page_id for url in urls]
    write(connection, news(ids))
    with connect_writer(store, "test") as estimator:
        gone = ErasedRows(np.zeros(1, np.int16), np.array(ids[:1]), np.array([NOW]))
        erase_pages(estimator, gone)
    assert known(connection).keys() == set(ids[1:])


def test_a_database_that_takes_no_writes_says_so_and_has_changed_nothing(connection):
    connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        write(connection, news([1]))
    assert known(connection) == {}
