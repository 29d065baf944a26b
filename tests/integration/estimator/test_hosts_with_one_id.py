"""Names of hosts that are made to have the id of another one: they are not that host, nor any."""

from estimator_world import DAY, NOW, SHARDS, contents, crawl, upsert
from twin_hosts import HOST, TWIN

from shared.contracts.identity import host_id_of, identify, shard_of
from shared.contracts.messages import HostLimit
from shared.store.snapshot import load_shard


def test_it_is_one():
    assert identify(f"https://{TWIN}/").host == TWIN
    assert host_id_of(TWIN) == host_id_of(HOST)
    assert shard_of(TWIN, SHARDS) == shard_of(HOST, SHARDS)


def hosts_of(settings):
    url = settings.database_url.get_secret_value()
    return load_shard(url, shard_of(HOST, SHARDS)).hosts


def refused(kafka):
    return [reason for reason in kafka.refused if "the id of another host" in reason]


async def test_a_batch_with_both_has_the_first_and_stops_nothing(settings, start, kafka):
    handler = await start(kafka)
    pages = [upsert(f"https://{host}/{n}", NOW + n) for n in (1, 2) for host in (HOST, TWIN)]
    await handler.handle(kafka.batch(*pages, upsert("https://host-1.example/")))
    assert len(refused(kafka)) == 2
    assert len(contents(settings)["pages"]) == 3
    assert hosts_of(settings).names == [HOST]


async def test_who_comes_later_changes_nothing_of_the_host_that_is_there(settings, start, kafka):
    handler = await start(kafka)
    limit = HostLimit(HOST, max_crawls_per_second=0.5, only="limit")
    await handler.handle(kafka.batch(upsert(f"https://{HOST}/1")))
    await handler.handle(kafka.batch(limit))
    before = contents(settings)["hosts"]
    for anew in (False, True):
        handler = await start(kafka) if anew else handler
        other = HostLimit(TWIN, crawl_delay_seconds=1e6, only="crawl-delay")
        await handler.handle(kafka.batch(upsert(f"https://{TWIN}/1", NOW + 1), other))
        busy = crawl(f"https://{TWIN}/1", NOW + DAY, "failed", retry_after_seconds=1e6)
        await handler.handle(kafka.batch(busy))
    assert contents(settings)["hosts"] == before
    assert len(refused(kafka)) == 4
    assert hosts_of(settings).rules["max_crawls_per_second"].tolist() == [0.5]
