"""A migrated database for the tests of the store."""

import pytest
from store_contents import SHARDS


@pytest.fixture
def store(migrated_database):
    """Address of a migrated database."""
    return migrated_database(SHARDS)
