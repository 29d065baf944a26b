"""What a fleet asks of pages, and pages that it discovers."""

import uuid

import grpc
import numpy as np
import psycopg
import pytest
from page_batches import page_batch
from pydantic import SecretStr
from workers import reader

from services.frontier.api import urlfrontier_pb2 as api
from shared.contracts.codec import decode
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.store.imports import import_pages
from shared.store.page_status import NEVER, REDIRECTED, REMOVED

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow(6)]

URLS = [f"https://{host}.example/{n}" for host in "ab" for n in range(3)]
CRAWLED_AT, IMPORTED_AT = 1.7e9, 1.7e9 + 100


@pytest.fixture
def as_frontier(migrated_url):
    """Address of a database with pages, as a user who may do what a frontier does."""
    crawled_at = np.array([CRAWLED_AT, *[NEVER] * (len(URLS) - 1)])
    import_pages(migrated_url, 4, [page_batch(URLS, crawled_at=crawled_at)], now=IMPORTED_AT)
    user = f"frontier_{uuid.uuid4().hex[:8]}"
    change = (
        "UPDATE pages SET status = %s FROM page_urls AS u "
        "WHERE u.shard = pages.shard AND u.page_id = pages.page_id AND url = %s"
    )
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(change, (REDIRECTED, URLS[4]))
        connection.execute(change, (REMOVED, URLS[5]))
        connection.execute(f"CREATE ROLE {user} LOGIN IN ROLE freshet_frontier")
    yield SecretStr(migrated_url.replace("postgres@", f"{user}@", 1))
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE {user}")


async def test_pages_are_counted_and_listed(start, as_frontier):
    frontier = await start(database_url=as_frontier)
    async with frontier.client() as client:
        stats = await client.GetStats(api.QueueWithinCrawlParams())
        assert (stats.size, stats.numberOfQueues, stats.crawlID) == (4, 2, "DEFAULT")
        assert stats.counts == {"completed": 1, "never_crawled": 3, "failing": 0, "waiting": 0}
        of_a = await client.GetStats(api.QueueWithinCrawlParams(key="a.example"))
        assert (of_a.size, of_a.numberOfQueues) == (3, 1)

        queues = await client.ListQueues(api.Pagination())
        assert (set(queues.values), queues.total) == ({"a.example", "b.example"}, 2)
        one = await client.ListQueues(api.Pagination(start=1, size=5))
        assert (list(one.values), one.start, one.size) == (list(queues.values)[1:], 1, 1)

        listed = [item async for item in client.ListURLs(api.ListUrlParams())]
        assert {item.known.info.url for item in listed} == set(URLS[:5])
        some = api.ListUrlParams(key="a.example", filter="EXAMPLE/1", ignoreCase=True)
        [item] = [item async for item in client.ListURLs(some)]
        assert item.known.info.url == URLS[1]
        assert (await client.CountURLs(api.CountUrlParams())).value == 5
        assert (await client.CountURLs(api.CountUrlParams(filter="EXAMPLE/1"))).value == 0


async def test_a_page_is_shown_as_it_stands(start, as_frontier):
    frontier = await start(database_url=as_frontier)
    async with frontier.client() as client:
        item = await client.GetURLStatus(api.URLStatusRequest(url=URLS[0]))
        assert item.known.refetchable_from_date == CRAWLED_AT
        assert item.creation_date == IMPORTED_AT
        assert item.known.info.metadata["freshet.state"].values == ["active"]
        gone = await client.GetURLStatus(api.URLStatusRequest(url=URLS[4]))
        assert gone.known.refetchable_from_date == 0
        for url in (URLS[5], "https://a.example/unknown"):
            with pytest.raises(grpc.aio.AioRpcError, match="no page has this URL"):
                await client.GetURLStatus(api.URLStatusRequest(url=url))


def depth(links: int) -> dict[str, api.StringList]:
    """Metadata as StormCrawler sends them."""
    return {"depth": api.StringList(values=[str(links)])}


async def test_discovered_urls_become_pages_where_nobody_knows_them(start, as_frontier):
    frontier = await start(
        database_url=as_frontier,
        frontier_discoveries=True,
        discovery_hosts=("known", "c.example", "d.example"),
        discovery_exclude=("*/print/*",),
        discovery_most_depth=3,
    )
    too_deep = "https://a.example/deep"
    found = {
        URLS[0]: "SKIPPED",
        URLS[5]: "SKIPPED",  # an operator has removed it
        "https://a.example/new": "OK",
        "https://c.example/#top": "OK",
        "https://127.0.0.1/admin": "SKIPPED",
        "https://e.example/": "SKIPPED",  # a host that is not wanted
        "https://a.example/print/new": "SKIPPED",
        too_deep: "SKIPPED",
        "mailto:a@a.example": "SKIPPED",
    }
    async with frontier.client() as client:
        infos = [api.URLInfo(url=url, metadata=depth(4 if url == too_deep else 3)) for url in found]
        items = (api.URLItem(discovered=api.DiscoveredURLItem(info=info)) for info in infos)
        assert await client.put(*items) == found
        batch = api.DiscoveredBatch(
            ID="7", items=[*infos, api.URLInfo(url="https://d.example/", metadata=depth(1))]
        )
        [ack] = [ack async for ack in client.PutDiscovered(iter([batch]))]
        assert list(ack.statuses) == [*[api.AckMessage.SKIPPED] * len(found), api.AckMessage.OK]

    async with reader(frontier.settings, PAGE_UPDATES) as topic:
        records = await topic.until(lambda got: len(got) >= 3)
    updates = [decode(PageUpdate, record.value) for record in records]
    assert {(update.op, update.url, update.importance) for update in updates} == {
        ("upsert", url, None)
        for url in ("https://a.example/new", "https://c.example/", "https://d.example/")
    }
