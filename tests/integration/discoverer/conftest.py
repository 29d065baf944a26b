"""A deployment with pages, for discoverers."""

import asyncio
import uuid

import numpy as np
import psycopg
import pytest
from discovered_pages import CHANGE, GONE_PAGE, KNOWN, REMOVED_PAGE
from page_batches import page_batch
from pydantic import SecretStr
from workers import settings_for

from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.store.imports import import_pages
from shared.store.page_status import GONE, REMOVED


@pytest.fixture
async def deploy(migrated_url):
    """A function that prepares a broker, and a database in which a discoverer may do no more than
    its role; what it returns publishes."""
    user = f"discoverer_{uuid.uuid4().hex[:8]}"
    started = []

    def fill() -> None:
        pages = page_batch(KNOWN, importance=np.full(len(KNOWN), 3.0))
        import_pages(migrated_url, 4, [pages], now=1.7e9)
        with psycopg.connect(migrated_url, autocommit=True) as connection:
            connection.execute(CHANGE, (REMOVED, REMOVED_PAGE))
            connection.execute(CHANGE, (GONE, GONE_PAGE))
            connection.execute(f"CREATE ROLE {user} LOGIN IN ROLE freshet_discoverer")

    async def deploying(broker, **more) -> Publisher:
        await asyncio.to_thread(fill)
        settings = settings_for(
            broker.bootstrap_servers,
            f"discoverer-{uuid.uuid4().hex[:8]}",
            database_url=SecretStr(migrated_url.replace("postgres@", f"{user}@", 1)),
            **more,
        )
        await ensure_topics(settings)
        publisher = Publisher(settings)
        await publisher.start()
        started.append(publisher)
        return publisher

    yield deploying
    for publisher in started:
        await publisher.stop()
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {user}")
