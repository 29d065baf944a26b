"""A shard that is loaded anew goes on as one that was not."""

import numpy as np
import psycopg
from estimator_world import DAY, NOW, SHARDS, URLS, a_day_of_life, crawl, upsert

from shared.contracts.identity import identify, shard_of
from shared.store.page_status import ACTIVE

AWAY, BACK_AT = URLS[2], NOW + 9 * DAY


async def test_what_is_learned_of_a_page_that_is_away_is_announced_when_it_is_back(
    settings, start, kafka
):
    """A refit may have moved it meanwhile: whoever loads the page cannot tell."""
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    await handler.handle(kafka.batch(crawl(AWAY, NOW + 4 * DAY, "gone", http_status=410)))
    number, page_id = shard_of(identify(AWAY).host, SHARDS), identify(AWAY).page_id
    database_url = settings.database_url.get_secret_value()
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE pages SET unsignalled_change_rate = 7.5, signal_rate = 3 WHERE page_id = %s",
            (page_id,),
        )
    await handler._load(number)
    shard = handler._shards[number]
    assert shard.is_whole
    away = shard.pages["status"] != ACTIVE
    assert away.any()
    assert np.isnan(shard.pages["announced_signal_rate"][away]).all()
    assert not np.isnan(shard.pages["announced_signal_rate"][~away]).any()
    # Nor is what comes from the database led away little by little, load after load.
    assert shard.pages["is_read"].all()

    await handler.handle(kafka.batch(upsert(AWAY, BACK_AT)))
    told = kafka.heard(number)[page_id]
    assert (told.unsignalled_change_rate, told.signal_rate) == (7.5, 3.0)


async def test_hosts_that_come_have_the_prior_of_the_last_refit(settings, start, kafka):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    learned = handler._shards[0].hosts.newcomer._replace(rate=np.array([0.25]))
    for shard in handler._shards.values():
        shard.hosts.newcomer = learned
    for number in range(SHARDS):
        await handler._load(number)
        hosts = handler._shards[number].hosts
        new = hosts.row_or_new(f"new-{number}.example")
        assert hosts.records["prior_rate"][new] == 0.25
