"""Epochs of a shard's owners never come again, whatever the server has forgotten."""

from store_contents import SHARDS

from shared.store.connection import connect
from shared.store.owners import raise_epochs

ALL = range(SHARDS)


def test_a_server_that_has_forgotten_owners_goes_on_above_them(store):
    with connect(store, "test", autocommit=True) as connection:
        before = raise_epochs(connection, ALL, "the first")
        # As a backup has it that was made before anybody took them over.
        connection.execute("UPDATE shard_owners SET epoch = 1")
        after = raise_epochs(connection, ALL, "the second")
    assert all(after[shard] > before[shard] for shard in ALL)


def test_a_server_whose_clock_is_slow_goes_on_above_them(store):
    with connect(store, "test", autocommit=True) as connection:
        connection.execute("UPDATE shard_owners SET epoch = 1")
        first = raise_epochs(connection, ALL, "the first")
        connection.execute("UPDATE shard_owners SET epoch = epoch + 3600000")
        after = raise_epochs(connection, ALL, "the second")
    assert after == {shard: epoch + 3_600_001 for shard, epoch in first.items()}
