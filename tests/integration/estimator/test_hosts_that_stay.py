"""A host is erased, and something newer is known of it: it stays, and its shard can be loaded."""

import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, grown_up
from psycopg import connect

from shared.contracts.identity import host_id_of, identify, shard_of
from shared.contracts.messages import HostLimit, PageUpdate
from shared.store.page_status import REMOVED
from shared.store.snapshot import load_for_learning

HOSTS = sorted({identify(url).host for url in URLS}, key=host_id_of)
ERASED_AT = NOW + 4 * DAY


def erasure(host):
    where = {"for_good": True, "whole_host": True, "updated_at": ERASED_AT}
    return PageUpdate("remove", f"https://{host}/", **where)


def urls_of(host):
    return [url for url in URLS if identify(url).host == host]


def rules_of(settings, host):
    query = "SELECT max_crawls_per_second, blocked_until, failures FROM hosts WHERE host = %s"
    with connect(settings.database_url.get_secret_value()) as connection:
        return connection.execute(query, (host,)).fetchone()


@pytest.mark.parametrize("host", [HOSTS[0], HOSTS[-1]])
async def test_a_page_that_was_removed_later_keeps_its_host(settings, start, kafka, host):
    """By another machine's clock. The host was erased, and who loaded the shard ended: its page was
    of none; or it became a page of the next host."""
    handler = await grown_up(start, kafka)
    first = urls_of(host)[0]
    await handler.handle(kafka.batch(PageUpdate("remove", first, updated_at=ERASED_AT + 3.0)))
    await handler.handle(kafka.batch(erasure(host)))
    url, number = settings.database_url.get_secret_value(), shard_of(host, SHARDS)
    await start(kafka)
    loaded = load_for_learning(url, number)
    row = loaded.pages.page_ids.tolist().index(identify(first).page_id)
    assert loaded.pages.status[row] == REMOVED
    assert loaded.hosts.names[loaded.hosts.host_ids.tolist().index(host_id_of(host))] == host
    assert loaded.pages.host_ids[row] == host_id_of(host)


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_a_limit_that_came_since_stays(settings, start, kafka, in_one_batch):
    """Whoever read them, an hour later, applied the limit first: topics are read independently."""
    handler = await grown_up(start, kafka)
    host = HOSTS[0]
    limit = HostLimit(host, max_crawls_per_second=0.25, blocked_until=NOW + 90 * DAY)
    batches = [[limit, erasure(host)]] if in_one_batch else [[limit], [erasure(host)]]
    for messages in batches:
        await handler.handle(kafka.batch(*messages))
    assert rules_of(settings, host) == (0.25, NOW + 90 * DAY, 0)
    loaded = load_for_learning(settings.database_url.get_secret_value(), shard_of(host, SHARDS))
    assert not {identify(url).page_id for url in urls_of(host)} & set(
        loaded.pages.page_ids.tolist()
    )
    again = await start(kafka)
    shard = again._shards[shard_of(host, SHARDS)]
    assert shard.hosts.records["max_crawls_per_second"][shard.hosts.row(host)] == 0.25


@pytest.mark.parametrize("taken_back", [True, False])
async def test_one_that_came_before_goes_and_so_does_one_that_was_taken_back(
    settings, start, kafka, taken_back
):
    handler = await grown_up(start, kafka)
    host = HOSTS[0]
    handler._clock.time = ERASED_AT - 60.0
    await handler.handle(kafka.batch(HostLimit(host, max_crawls_per_second=0.25)))
    handler._clock.time = NOW + 30 * DAY
    since = [HostLimit(host)] if taken_back else []
    await handler.handle(kafka.batch(*since, erasure(host)))
    assert rules_of(settings, host) is None
