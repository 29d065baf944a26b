"""A page that an estimator has got is known to whoever lets it in, whatever is noted of it."""

import pytest
from page_batches import page_batch
from store_contents import SHARDS

from shared.contracts.identity import identify
from shared.store.connection import connect
from shared.store.imports import import_pages
from shared.store.let_in import forget_let_in, let_in

PAGE = identify("https://a.example/1")
BEFORE = {PAGE.host: 0}


def comes(store):
    """What an estimator does with a page that is published."""
    import_pages(store, SHARDS, [page_batch([PAGE.url])], now=1.7e9)


def forgotten(store):
    """What a count of pages does with those that have come."""
    with connect(store, "test", autocommit=True) as connection:
        return sum(forget_let_in(connection, shard, SHARDS) for shard in range(SHARDS))


@pytest.fixture
def connection(store):
    with connect(store, "test", autocommit=True) as made:
        assert let_in(made, [PAGE], BEFORE, 5) == {PAGE.page_id: "new"}
        yield made


def counted(connection):
    return connection.execute("SELECT pages FROM let_in_hosts").fetchall()


def test_a_page_that_has_come_is_known_before_its_note_is_forgotten(store, connection):
    comes(store)
    assert let_in(connection, [PAGE], BEFORE, 5) == {PAGE.page_id: "known"}
    assert forgotten(store) == 1
    assert let_in(connection, [PAGE], BEFORE, 5) == {PAGE.page_id: "known"}


class Between:
    """A connection; something happens between the two questions about pages."""

    def __init__(self, connection, happens):
        self._connection = connection
        self._happens = happens
        self._asked = 0

    def execute(self, query, *given):
        self._asked += "SELECT page_id" in query
        if self._asked == 2:
            self._asked += 1
            self._happens()
        return self._connection.execute(query, *given)

    def transaction(self):
        return self._connection.transaction()


def test_a_page_that_comes_and_is_forgotten_meanwhile_is_known_and_counts_once(store, connection):
    def happens():
        comes(store)
        assert forgotten(store) == 1

    before = counted(connection)
    asking = Between(connection, happens)
    assert let_in(asking, [PAGE], BEFORE, 5) == {PAGE.page_id: "known"}
    assert counted(connection) == before == [(1,)]
