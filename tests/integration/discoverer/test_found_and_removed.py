"""What links say of pages that operators know more of: nothing."""

import asyncio
import time

import psycopg
import pytest
from workers import reader, worker

from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import Discovery, PageUpdate
from shared.contracts.topics import DISCOVERIES, PAGE_UPDATES
from shared.discovery.updates import found_page
from shared.store.page_status import ACTIVE, REMOVED

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow(20)]

PAGE = "https://a.example/0"
FOUND = "https://a.example/found"


async def state_of(migrated_url, url, wanted):
    """Status, importance and maximum age of a page, once they are what they should become."""
    query = (
        "SELECT status, importance, updated_at FROM pages JOIN page_urls USING (shard, page_id) "
        "WHERE url = %s"
    )
    row = None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (row is None or row[:2] != wanted):
        with psycopg.connect(migrated_url, autocommit=True) as connection:
            row = connection.execute(query, (url,)).fetchone()
        await asyncio.sleep(0.1)
    assert row is not None
    assert row[:2] == wanted
    return row


async def test_a_page_that_was_found_and_removed_stays_removed_whatever_comes_late_or_again(
    local_broker, deploy, migrated_url, tmp_path
):
    publisher = await deploy(local_broker)
    settings = publisher.settings
    as_estimator = settings.model_copy(
        update={"database_url": type(settings.database_url)(migrated_url)}
    )
    found_at = time.time()

    async def say(message: PageUpdate) -> None:
        await publisher.send_for_host(PAGE_UPDATES, "a.example", message)

    with (
        worker("estimator", as_estimator, tmp_path) as estimator,
        worker("discoverer", settings, tmp_path) as discoverer,
    ):
        await publisher.send(
            DISCOVERIES, None, encode(Discovery("https://a.example/1", [FOUND], found_at - 1))
        )
        await state_of(migrated_url, FOUND, (ACTIVE, 1.0))
        # What is said of a page that is known changes nothing of it.
        await say(PageUpdate("upsert", FOUND, importance=7.0, updated_at=found_at))
        await state_of(migrated_url, FOUND, (ACTIVE, 7.0))
        await say(found_page(identify(FOUND), found_at - 1))
        await say(found_page(identify(PAGE), found_at))
        await say(PageUpdate("remove", FOUND, updated_at=found_at + 2))
        await state_of(migrated_url, FOUND, (REMOVED, 7.0))
        # The link of before, once more; and the page is linked to again.
        await say(found_page(identify(FOUND), found_at - 1))
        discoverer.kill()
        with worker("discoverer", settings, tmp_path) as process:
            async with reader(settings, PAGE_UPDATES) as updates:
                for url in (FOUND, PAGE, "https://a.example/last"):
                    value = encode(Discovery("https://a.example/1", [url]))
                    await publisher.send(DISCOVERIES, None, value, partition=0)
                records = await updates.until(lambda got: any(b"/last" in r.value for r in got))
            await process.ready()
        assert sum(FOUND.encode() in record.value for record in records) == 5
        await state_of(migrated_url, "https://a.example/last", (ACTIVE, 1.0))
        _, _, updated_at = await state_of(migrated_url, FOUND, (REMOVED, 7.0))
        assert updated_at == found_at + 2
        # Its importance is as it was imported.
        await state_of(migrated_url, PAGE, (ACTIVE, 3.0))
        assert estimator.stop() == 0


async def test_a_page_that_nobody_has_applied_yet_is_what_operators_said_and_not_what_links_do(
    local_broker, deploy, migrated_url, tmp_path
):
    publisher = await deploy(local_broker, discovery_importance={"*/weighty": 9.0})
    settings, now = publisher.settings, time.time()
    weighty, added = "https://a.example/weighty", "https://a.example/added/weighty"
    for message in (
        PageUpdate("upsert", FOUND, importance=7.0, updated_at=now - 60),
        PageUpdate("remove", FOUND, updated_at=now - 50),
        PageUpdate("upsert", added, importance=2.0, updated_at=now - 60),
    ):
        await publisher.send_for_host(PAGE_UPDATES, "a.example", message)
    with worker("discoverer", settings, tmp_path):
        async with reader(settings, PAGE_UPDATES) as updates:
            for url in (FOUND, added, weighty):
                value = encode(Discovery("https://a.example/1", [url], now))
                await publisher.send(DISCOVERIES, None, value, partition=0)
            # Estimators are behind, so the links go out.
            await updates.until(lambda got: len(got) >= 6)
    as_estimator = settings.model_copy(
        update={"database_url": type(settings.database_url)(migrated_url)}
    )
    with worker("estimator", as_estimator, tmp_path) as estimator:
        await state_of(migrated_url, weighty, (ACTIVE, 9.0))
        await state_of(migrated_url, added, (ACTIVE, 2.0))
        await state_of(migrated_url, FOUND, (REMOVED, 7.0))
        assert estimator.stop() == 0
