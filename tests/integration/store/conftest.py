"""A migrated database for the tests of the store."""

import pytest
from holding_shards import PAGES
from store_contents import SHARDS, fill, urls_of_shard


@pytest.fixture
def store(migrated_database):
    """Address of a migrated database."""
    return migrated_database(SHARDS)


@pytest.fixture
def filled(store):
    """The same, with `PAGES` in each shard, for those that grow; others fill theirs otherwise."""
    fill(store, [url for shard in range(SHARDS) for url in urls_of_shard(shard, PAGES)])
    return store
