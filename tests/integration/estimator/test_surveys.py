"""Priors are refitted where few pages are in memory: the database is looked through."""

import asyncio
import threading
import time

import numpy as np
import psycopg
import pytest
from estimator_world import (
    DAY,
    FEW,
    NOW,
    SHARDS,
    URLS,
    assert_schedulers_know,
    crawl,
    signal,
    stored,
    upsert,
)

from services.estimator import surveying
from services.estimator.refitting import Refits, refit
from services.estimator.shard import Shard
from services.estimator.surveying import look_over, take
from shared.contracts.identity import identify, shard_of
from shared.store import gathering, learned_pages
from shared.store.page_parts import DamagedStore
from shared.store.snapshot import load_for_learning


@pytest.fixture
async def handler(kafka, begin):
    """An estimator with few pages in memory, after crawls of hosts that differ by much."""
    handler = await begin(kafka, FEW)
    rng = np.random.default_rng(5)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    for day in range(1, 9):
        found = rng.random(len(URLS)) < [0.9 if "host-1." in url else 0.1 for url in URLS]
        await handler.handle(
            kafka.batch(
                *(
                    crawl(url, NOW + day * DAY, "changed" if is_new else "unchanged")
                    for url, is_new in zip(URLS, found.tolist(), strict=True)
                    if day % (1 + URLS.index(url) % 3) == 0
                ),
                *(signal(url, NOW + (day - 0.5) * DAY) for url in URLS[:: 1 + day % 3]),
            )
        )
    return handler


def loaded_shards(handler):
    loaded = [load_for_learning(handler._database_url, number) for number in range(SHARDS)]
    return [Shard.load(snapshot) for snapshot in loaded]


@pytest.mark.parametrize("costs_of_one_by_its_id", [0, 10**9])
async def test_looking_through_the_database_comes_to_what_a_refit_in_memory_does(
    no_refits, handler, monkeypatch, costs_of_one_by_its_id
):
    monkeypatch.setattr(learned_pages, "PAGES_AT_ONCE", 3)
    monkeypatch.setattr(learned_pages, "BY_ID_COSTS", costs_of_one_by_its_id)
    whole, streamed = loaded_shards(handler), loaded_shards(handler)
    expected = refit(whole, 0.05)
    found = [
        look_over(handler._database_url, shard.number, 1, shard.hosts.frozen())
        for shard in streamed
    ]
    done = take(found, streamed, 0.05)
    assert any(part.pages.size for part in expected)
    assert any(part.factored.size for part in expected)
    for mine, other, one, two in zip(whole, streamed, expected, done, strict=True):
        np.testing.assert_array_equal(one.hosts, two.hosts)
        np.testing.assert_array_equal(one.factored, two.factored)
        np.testing.assert_array_equal(one.pages, two.pages)
        for ours, theirs in zip(mine.hosts.priors, other.hosts.priors, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-9)
        for name in ("unsignalled_change_rate", "signal_evidence", "factor"):
            np.testing.assert_allclose(other.pages[name], mine.pages[name], rtol=1e-9)


@pytest.mark.parametrize("costs_of_one_by_its_id", [0, 10**9])
async def test_a_page_without_a_url_is_told_of_when_it_is_looked_at(
    no_refits, handler, monkeypatch, costs_of_one_by_its_id
):
    monkeypatch.setattr(learned_pages, "BY_ID_COSTS", costs_of_one_by_its_id)
    with psycopg.connect(handler._database_url) as connection:
        connection.execute("DELETE FROM page_urls")
    hosts = handler._shards[0].hosts.frozen()
    with pytest.raises(DamagedStore, match="shard 0: pages have no row in page_urls"):
        look_over(handler._database_url, 0, 1, hosts)


async def test_of_many_pages_urls_are_read_only_of_those_with_crawls(
    kafka, no_refits, handler, monkeypatch
):
    uncrawled = [f"https://host-1.example/more/{number}" for number in range(800)]
    await handler.handle(kafka.batch(*map(upsert, uncrawled)))

    def none_but_all(*_):
        pytest.fail("all URLs of the shard are read")

    monkeypatch.setattr(learned_pages, "_AllDirectories", none_but_all)
    number = shard_of("host-1.example", SHARDS)
    hosts = handler._shards[number].hosts.frozen()
    found = look_over(handler._database_url, number, 1, hosts)
    known = [identify(url) for url in URLS]
    crawled = {one.page_id for one in known if shard_of(one.host, SHARDS) == number}
    assert set(found.candidates.page_ids.tolist()) == crawled


async def test_a_survey_works_on_one_part_of_a_table_at_a_time(no_refits, handler, monkeypatch):
    """It would not rest otherwise: while one thread does, another asks the server."""
    monkeypatch.setattr(gathering, "PART_BYTES", 8192)
    monkeypatch.setattr(gathering, "_FEWEST_PARTS", 1)
    resting, looks, overlaps = threading.Lock(), [], []

    def rests():
        looks.append(1)
        if resting.acquire(blocking=False):
            time.sleep(0.01)
            resting.release()
        else:
            overlaps.append(1)

    look_over(handler._database_url, 0, 1, handler._shards[0].hosts.frozen(), rests)
    assert len(looks) > 2
    assert not overlaps


async def test_a_survey_ends_with_its_estimator_however_long_it_rests(
    no_refits, handler, monkeypatch
):
    resting, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Resting(surveying.Rests):
        def __init__(self):
            super().__init__(share=1e-12)

        def __call__(self):
            loop.call_soon_threadsafe(resting.set)
            super().__call__()

    def looking(*given):
        try:
            look_over(*given)
        finally:
            loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(surveying, "Rests", Resting)
    monkeypatch.setattr(surveying, "look_over", looking)
    handler._survey.begin(handler._shards)
    await resting.wait()
    handler._survey.close()
    await ended.wait()
    assert not handler._survey._found


async def until_surveyed(handler):
    while handler._survey._task is not None:
        await asyncio.sleep(0.01)


def means_of(priors):
    return priors.shape / priors.rate


def rates_of_hosts(handler):
    return {
        name: rate
        for shard in handler._shards.values()
        for name, rate in zip(shard.hosts.names, means_of(shard.hosts.priors).tolist(), strict=True)
    }


async def test_priors_are_refitted_where_few_pages_are_in_memory(
    settings, kafka, handler, begin, monkeypatch
):
    before, noted = stored(settings)["hosts"], []
    note = handler._refits.noted
    monkeypatch.setattr(handler._refits, "noted", lambda *of: (noted.append(of), note(*of)))
    await handler.handle(kafka.batch(signal(URLS[0], NOW + 12 * DAY)))
    await until_surveyed(handler)
    await handler.handle(kafka.batch(signal(URLS[0], NOW + 13 * DAY)))
    # What it worked, without its rests, counts as the refit's: the next one comes the later.
    [(_, _, spent)] = noted
    assert spent > handler._survey.seconds > 0.0
    assert stored(settings)["hosts"] != before
    rates = rates_of_hosts(handler)
    assert rates["host-1.example"] > 2 * rates["host-2.example"]
    # A page follows its host by itself, or has followed it: the next owner finds the same.
    assert_schedulers_know(settings, kafka)
    assert rates_of_hosts(await begin(kafka, 10**6)) == rates


async def test_what_was_looked_through_under_another_owner_is_not_taken(
    settings, kafka, no_refits, handler, begin, monkeypatch
):
    handler._survey.begin(handler._shards)
    await until_surveyed(handler)
    assert handler._survey._found
    before = stored(settings)["hosts"]
    await begin(kafka, FEW)  # It takes the shards away.
    monkeypatch.setattr(surveying.Survey, "begin", lambda *_: None)
    monkeypatch.setattr(Refits, "are_due", lambda *_: True)
    await handler.handle(kafka.batch(signal(URLS[0], NOW + 12 * DAY)))
    assert not handler._survey._found
    priors = [row[0].split(",")[-5:-3] for row in stored(settings)["hosts"]]
    assert priors == [row[0].split(",")[-5:-3] for row in before]


async def test_hosts_that_come_while_pages_are_looked_through_count_for_no_other(
    kafka, no_refits, handler
):
    def frozen():
        return [handler._shards[number].hosts.frozen() for number in range(SHARDS)]

    def looked(hosts):
        url = handler._database_url
        return [look_over(url, number, 1, of_shard) for number, of_shard in enumerate(hosts)]

    expected, then = looked(frozen()), frozen()
    later = [f"https://later-{number}.example/" for number in range(12)]
    await handler.handle(kafka.batch(*(upsert(url, crawled_at=NOW) for url in later)))
    for day in range(1, 9):
        await handler.handle(kafka.batch(*(crawl(u, NOW + day * DAY, "changed") for u in later)))
    for found, before in zip(looked(then), expected, strict=True):
        assert found.names == before.names
        mine, theirs = (*found.sums, *found.candidates), (*before.sums, *before.candidates)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
