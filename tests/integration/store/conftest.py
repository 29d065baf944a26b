"""A migrated database for the tests of the store."""

import pytest
from store_contents import SHARDS

from migrations.upgrade import migrate


@pytest.fixture
def store(database_url):
    """Address of a migrated database."""
    migrate(database_url, SHARDS)
    return database_url
