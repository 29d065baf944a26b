"""A server as operators have it: the one of the other tests is called unsafe."""

import pytest

from deploy.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def postgres_server(scratch_dir):
    server = EmbeddedPostgres(scratch_dir / "postgres-of-the-doctor")
    server.start()
    yield server
    server.stop()
