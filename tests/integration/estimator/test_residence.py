"""An estimator that keeps few pages in memory does what one does that has them all."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from estimator_world import (
    DAY,
    FEW,
    NOW,
    SHARDS,
    URLS,
    Broker,
    a_day_of_life,
    assert_schedulers_know,
    crawl,
    empty,
    signal,
    stored,
    upsert,
)

from services.estimator import reading
from services.estimator.persistence import Store
from services.estimator.reading import READERS
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.store.positions import Superseded
from shared.store.snapshot import load_for_learning

IDS = np.array([identify(url).page_id for url in URLS])


def erasures(rng, day, some):
    """Pages that are removed, or erased, one with its host, and some that are added again."""
    again = [upsert(some[7], NOW + (day + 0.7) * DAY)] if rng.random() < 0.5 else []
    whole = [remove(some[6], NOW + (day + 0.6) * DAY, for_good=True, whole_host=True)]
    gone = remove(some[7], NOW + (day + 0.6) * DAY, for_good=day % 2 == 0)
    return [gone, *again, *(whole if day % 6 == 0 else [])]


def a_life(kafka, seed=3, *, erasing=False):
    """Batches of all kinds, in which the same pages come again, new ones too."""
    batches = a_day_of_life(kafka)
    rng = np.random.default_rng(seed)
    sources = ("feed", "sitemap", "webhook")
    for day in range(4, 16):
        some = rng.choice(URLS, 9, replace=False).tolist()
        batches.append(
            kafka.batch(
                *(signal(url, NOW + (day + 0.2) * DAY, sources[day % 3]) for url in some[:6]),
                *(
                    crawl(url, NOW + (day + 0.5) * DAY, "changed" if row % 2 else "unchanged")
                    for row, url in enumerate(some)
                ),
                upsert(f"https://host-{day % 7}.example/new/{day}", NOW + day * DAY),
                crawl("https://host-1.example/nobody/knows", NOW + day * DAY),
                upsert(some[8], NOW + day * DAY, importance=1.0 + day),
                *(erasures(rng, day, some) if erasing else ()),
                crawl(some[5].replace("https", "HTTPS"), NOW + (day + 0.8) * DAY, "failed"),
            )
        )
    return batches


def remove(url, at, **options):
    return PageUpdate("remove", url, updated_at=at, **options)


def in_memory(handler):
    return sum(len(shard.pages) for shard in handler._shards.values())


@pytest.mark.parametrize(("seed", "erasing"), [(3, False), (5, True)])
async def test_the_database_has_the_same_however_few_pages_are_in_memory(
    settings, begin, no_refits, seed, erasing
):
    outcomes = []
    for most in (10**6, FEW, 1):
        kafka = Broker()
        handler = await begin(kafka, most)
        for turn, batch in enumerate(a_life(kafka, seed, erasing=erasing)):
            if turn % 5 == 4:  # Nothing of what was in memory is needed by who comes next.
                handler = await begin(kafka, most)
            await handler.handle(batch)
            # A shard that has lost a host is loaded anew, with what it may have to announce.
            assert in_memory(handler) <= most or erasing
        if not erasing:
            assert_schedulers_know(settings, kafka)
        outcomes.append((stored(settings), sorted(kafka.refused)))
        await handler.close()
        empty(settings)
    assert outcomes[0] == outcomes[1] == outcomes[2]


async def test_nothing_is_read_where_all_pages_are_in_memory(settings, begin, monkeypatch):
    handler = await begin(Broker(), 10**6)
    monkeypatch.setattr(Store, "read_pages", lambda *_: pytest.fail("a page was read"))
    kafka = Broker()
    for batch in a_life(kafka):
        await handler.handle(batch)
    assert all(shard.is_whole for shard in handler._shards.values())


async def test_a_start_reads_no_page_where_there_are_many(settings, begin, no_refits):
    kafka = Broker()
    handler = await begin(kafka, 10**6)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    again = await begin(kafka, FEW)
    # What may have to be announced again is read.
    assert in_memory(again) <= len(URLS) / 2
    assert not any(shard.is_whole for shard in again._shards.values())
    # As exactly as it matters, as the tables are small: all of them.
    records = [sum(s.records for s in one._shards.values()) for one in (handler, again)]
    assert records[0] == records[1] > 0


async def test_a_batch_that_is_not_committed_leaves_nothing_in_memory(
    settings, begin, no_refits, monkeypatch
):
    kafka = Broker()
    handler = await begin(kafka, FEW)
    first, second, third = a_day_of_life(kafka)
    await handler.handle(first)
    commit, failures = Store.commit, iter(range(2))

    def fail(self, batch):
        if next(failures, None) is not None:
            raise psycopg.OperationalError("the server is away")
        return commit(self, batch)

    monkeypatch.setattr(Store, "commit", fail)
    await handler.handle(second)
    await handler.handle(third)
    bounded = stored(settings)
    empty(settings)
    kafka = Broker()
    whole = await begin(kafka, 10**6)
    for batch in a_day_of_life(kafka):
        await whole.handle(batch)
    assert stored(settings) == bounded


async def test_a_database_that_cannot_be_read_makes_no_message_bad(
    settings, begin, no_refits, monkeypatch
):
    kafka = Broker()
    handler = await begin(kafka, FEW)
    first, second, _ = a_day_of_life(kafka)
    await handler.handle(first)
    read, failures = Store.read_pages, iter(range(3))

    def fail(self, *given):
        if next(failures, None) is not None:
            raise psycopg.OperationalError("the server is away")
        return read(self, *given)

    monkeypatch.setattr(Store, "read_pages", fail)
    await handler.handle(second)
    assert kafka.refused == []
    loaded = [load_for_learning(handler._database_url, n) for n in range(SHARDS)]
    assert sum(int(part.learning.crawls.sum()) for part in loaded) == len(URLS)


async def test_nothing_is_read_of_a_shard_that_has_another_owner_by_now(
    settings, begin, no_refits, monkeypatch
):
    kafka = Broker()
    handler = await begin(kafka, FEW)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    erased = PageUpdate("remove", URLS[0], updated_at=NOW + 2 * DAY, for_good=True)
    erasure, crawls = kafka.batch(erased), kafka.batch(crawl(URLS[0], NOW + 1 * DAY))
    read, loop = Store.read_pages, asyncio.get_running_loop()

    async def overtake():
        await (await begin(kafka, FEW)).handle(erasure)

    def read_late(self, *given):
        if self is handler._store:
            monkeypatch.setattr(Store, "read_pages", read)
            asyncio.run_coroutine_threadsafe(overtake(), loop).result()
        return read(self, *given)

    # The successor erases the page between the look at the shard's owner and the reading.
    monkeypatch.setattr(Store, "read_pages", read_late)
    handler._shards[shard_of(identify(URLS[0]).host, SHARDS)].keep(np.empty(0, np.int64))
    await handler.handle(crawls)
    assert Store.read_pages is read
    assert kafka.refused == []


async def test_all_pages_of_a_host_are_named_to_their_owner_alone(settings, begin):
    store, other = (await begin(Broker(), FEW))._store, Store(settings)
    epoch = store.own(0)
    assert store.pages_of_host(0, epoch, 1).size == 0
    assert store.read_pages(0, epoch, IDS).pages.page_ids.size == 0
    other.open()
    other.own(0)
    other.close()
    for read, given in ((store.pages_of_host, 1), (store.read_pages, IDS)):
        with pytest.raises(Superseded, match="another owner"):
            read(0, epoch, given)


async def test_a_host_is_erased_with_the_pages_that_are_not_in_memory(settings, begin, no_refits):
    kafka = Broker()
    handler = await begin(kafka, FEW)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    host = identify(URLS[0]).host
    erased = PageUpdate("remove", URLS[0], updated_at=NOW + 9 * DAY, for_good=True, whole_host=True)
    await handler.handle(kafka.batch(erased))
    left = [url for url in URLS if identify(url).host != host]
    assert len(stored(settings)["pages"]) == len(stored(settings)["page_urls"]) == len(left)
    assert not any(host in row[0] for row in stored(settings)["page_urls"])
    assert not any(host in row[0] for row in stored(settings)["hosts"])


def plan_of(store, *, is_ahead):
    """The plan of the one statement that has read pages this way."""
    [*_, used_last] = store._readers._idle.queue
    connection = used_last.connection
    texts = connection.execute("SELECT name, statement FROM pg_prepared_statements").fetchall()
    reading = [(name, text) for name, text in texts if "AS owner" in text]
    [name] = [name for name, text in reading if text.endswith("-- read ahead") == is_ahead]
    ids = ",".join(map(str, IDS))
    rows = connection.execute(f"EXPLAIN EXECUTE \"{name}\" ('{{{ids}}}')").fetchall()
    connection.rollback()
    return "\n".join(row[0] for row in rows)


async def test_pages_of_several_shards_are_read_at_once(settings, begin, monkeypatch):
    store, meeting = (await begin(Broker(), FEW))._store, threading.Barrier(READERS)
    read = reading.read_pages

    def read_together(*given, **more):
        meeting.wait(60)  # each with a connection of its own, or nobody goes on
        return read(*given, **more)

    monkeypatch.setattr(reading, "read_pages", read_together)
    epochs = [store.own(shard) for shard in range(READERS)]
    with ThreadPoolExecutor(READERS) as threads:
        found = list(threads.map(store.read_pages, range(READERS), epochs, [IDS] * READERS))
    assert [part.pages.page_ids.size for part in found] == [0] * READERS


async def test_pages_of_the_next_shards_are_read_together(settings, begin, no_refits, monkeypatch):
    kafka = Broker()
    handler = await begin(kafka, FEW)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    for shard in handler._shards.values():
        shard.keep(np.empty(0, np.int64))
    assert len({shard_of(identify(url).host, SHARDS) for url in URLS}) >= READERS
    meeting, first, read = threading.Barrier(READERS), iter(range(READERS)), reading.read_pages

    def read_together(*given, **more):
        if next(first, None) is not None:
            meeting.wait(60)  # all of them are under way, or nobody goes on
        return read(*given, **more)

    monkeypatch.setattr(reading, "read_pages", read_together)
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS)))
    assert not meeting.broken
    assert kafka.refused == []


async def test_who_asks_for_more_at_once_than_there_are_connections_waits(settings, begin):
    store = (await begin(Broker(), FEW))._store
    epoch = store.own(0)
    asked = 4 * READERS
    with ThreadPoolExecutor(asked) as threads:
        found = list(threads.map(store.read_pages, [0] * asked, [epoch] * asked, [IDS] * asked))
    assert [part.pages.page_ids.size for part in found] == [0] * asked


async def test_pages_are_read_alike_whether_they_are_asked_for_ahead_or_not(
    settings, begin, monkeypatch
):
    """And the server plans it so if it is asked to, and as ever if not (an older one makes a bitmap
    of few pages by itself), whatever it has planned before."""
    kafka = Broker()
    handler = await begin(kafka, FEW)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    store, shard, found = Store(settings), shard_of(identify(URLS[0]).host, SHARDS), []
    are_bitmaps = []
    store.open()
    epoch = store.own(shard)
    for is_ahead in (False, True, False, True):
        monkeypatch.setattr(store._readers._ahead, "choose", lambda is_ahead=is_ahead: is_ahead)
        found.append(store.read_pages(shard, epoch, np.unique(IDS)))
        are_bitmaps.append("Bitmap Heap Scan on pages_" in plan_of(store, is_ahead=is_ahead))
    store.close()
    assert are_bitmaps == [are_bitmaps[0], True, are_bitmaps[0], True]
    assert found[0].pages.page_ids.size > 0
    for pages in found[1:]:
        assert repr(pages.parts) == repr(found[0].parts)
