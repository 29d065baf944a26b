"""Host priors of the estimator on a real PostgreSQL, and what a scheduler makes of them."""

import numpy as np
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, a_day_of_life, contents, crawl, signal, upsert

from services.scheduler.flow.loading import build_shard
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.identity import identify, shard_of
from shared.store.snapshot import load_shard


async def test_priors_are_refitted_stored_and_announced_for_all_shards(settings, start, kafka):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    busy = [url for url in URLS if identify(url).host != "host-0.example"]
    for day in range(1, 12):
        await handler.handle(kafka.batch(*(crawl(url, NOW + day * DAY, "changed") for url in busy)))
    url = settings.database_url.get_secret_value()
    quiet = shard_of("host-0.example", SHARDS)
    for shard in range(SHARDS):
        hosts = load_shard(url, shard).hosts
        means = dict(zip(hosts.names, hosts.prior_shape / hosts.prior_rate, strict=True))
        assert min(means.values(), default=1.0) > 2 / 60, "busy pages everywhere"
        last = {message.host: message for message in kafka.hosts[shard]}
        for host, mean in means.items():
            assert last[host].unsignalled_change_rate == pytest.approx(
                mean, rel=settings.material_change
            )
    # Of a page that was never observed nothing is written: it follows its host by itself.
    pages = load_shard(url, quiet).pages
    page_id = next(identify(u).page_id for u in URLS if identify(u).host == "host-0.example")
    assert np.isnan(pages.unsignalled_change_rate[pages.page_ids == page_id]).all()
    restarted = await start(kafka)
    tables = contents(settings)
    await restarted.handle(kafka.batch(signal(URLS[0], NOW + 20 * DAY)))
    assert len(contents(settings)["hosts"]) == len(tables["hosts"])


async def test_a_scheduler_learns_the_same_from_the_topic_and_from_the_database(
    settings, start, kafka
):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    await handler.handle(kafka.batch(*(signal(u, NOW + 9 * DAY) for u in URLS)))
    rules = ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0)
    for number in range(SHARDS):
        snapshot = load_shard(settings.database_url.get_secret_value(), number)
        loaded, told = (build_shard(snapshot, rules) for _ in range(2))
        told.host_parameters(kafka.hosts[number])
        for name in ("alpha", "kappa"):
            np.testing.assert_allclose(
                told.pages[name][: told.used], loaded.pages[name][: told.used], rtol=0.06
            )
        pages = loaded.pages[: loaded.used]
        signalled = pages["signals"] > 0
        assert signalled.all()
        assert (pages["gamma"] > 0).all()
