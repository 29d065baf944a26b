"""A dump of before a growth is restored: the topics make good what came since, in its order."""

import uuid

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, crawl, upsert
from growing_world import GROWN, Installation
from psycopg.conninfo import conninfo_to_dict

from services.estimator.refitting import Refits
from shared.contracts.messages import PageUpdate
from shared.store.growth import begin_growth

NEW = [f"https://host-{number}.example/new" for number in range(20)]
"""Pages that come after the dump, and go after the growth."""


@pytest.fixture
async def growing(migrated_database, monkeypatch):
    # Which hosts are fitted together depends on who has which shards.
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    installation = Installation(migrated_database(SHARDS))
    yield installation
    await installation.stop()


@pytest.fixture
async def dump(growing, postgres_server):
    """Makes an installation as the growing one is now, with the same topics."""
    made = []

    def copy():
        name = f"test_{uuid.uuid4().hex}"
        source = conninfo_to_dict(growing.url)["dbname"]
        with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {source}")
        made.append((name, Installation(postgres_server.database_uri(name))))
        made[-1][1].log = growing.log
        return made[-1][1]

    yield copy
    for name, installation in made:
        await installation.stop()
        with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def tell(installation, messages, shards):
    for message in messages:
        installation.log.add(message, shards)
        await installation.settle()


def grow(installation):
    begin_growth(installation.url, GROWN)
    for parent in range(SHARDS):
        installation.split(parent)


@pytest.mark.slow(2)
async def test_workers_read_on_with_the_shards_of_before_and_then_these_grow_again(growing, dump):
    """Grown first, shards would take what came after the growth before what came until then."""
    await growing.start(range(SHARDS))
    await tell(growing, map(upsert, URLS), SHARDS)
    await growing.stop()
    restored = dump()

    await growing.start(range(SHARDS))
    await tell(growing, map(upsert, NEW), SHARDS)
    await tell(growing, [crawl(url, NOW + DAY, "changed") for url in URLS], SHARDS)
    grow(growing)
    await growing.start(range(SHARDS, GROWN))
    await tell(growing, [crawl(url, NOW + 2 * DAY, "unchanged") for url in URLS], GROWN)
    gone = [PageUpdate("remove", url, updated_at=NOW + 3 * DAY) for url in NEW]
    await tell(growing, gone, GROWN)
    as_it_was = growing.learned()
    await growing.stop()

    await restored.start(range(GROWN))
    await restored.settle()
    grow(restored)
    await restored.settle()
    assert restored.learned() == as_it_was
    assert restored.log.refused == []
