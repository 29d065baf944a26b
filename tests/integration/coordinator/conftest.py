"""A coordinator that leads, beside a database with something in it."""

import uuid

import pytest
from views_world import SHARDS, fill
from workers import settings_for, worker

from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher


@pytest.fixture
async def view_settings(local_broker, database_url):
    """The settings of a coordinator whose database is filled."""
    await fill(database_url)
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"views-{uuid.uuid4().hex[:8]}",
        database_url=database_url,
        partitions=SHARDS,
        scheduler_urls="http://127.0.0.1:1",
    )
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_global(BANDWIDTH, Bandwidth(1.0))
    await publisher.stop()
    return settings


@pytest.fixture
async def viewed(view_settings, tmp_path):
    """The coordinator's process."""
    with worker("coordinator", view_settings, tmp_path) as process:
        await process.ready()
        yield process
