"""A coordinator that leads, beside a database with something in it: shared by a file's tests."""

import uuid

import psycopg
import pytest
import pytest_asyncio
from views_world import SHARDS, fill
from workers import settings_for, worker

from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher


@pytest.fixture(scope="module")
def view_database(postgres_server):
    """The address of a database that is filled by `view_settings`."""
    name = f"views_{uuid.uuid4().hex}"
    yield postgres_server.create_database(name)
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def view_settings(local_broker, view_database):
    """The settings of a coordinator whose database is filled."""
    await fill(view_database)
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"views-{uuid.uuid4().hex[:8]}",
        database_url=view_database,
        partitions=SHARDS,
        scheduler_urls="http://127.0.0.1:1",
    )
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_global(BANDWIDTH, Bandwidth(1.0))
    await publisher.stop()
    return settings


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewed(view_settings, tmp_path_factory):
    """The coordinator's process."""
    with worker("coordinator", view_settings, tmp_path_factory.mktemp("viewed")) as process:
        await process.ready()
        yield process
