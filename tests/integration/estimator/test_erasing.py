"""Pages and hosts that are erased: nothing of them stays, and nothing late brings them back."""

import numpy as np
import psycopg
import pytest
from aiokafka import ConsumerRecord
from estimator_world import DAY, NOW, SHARDS, URLS, contents, crawl, grown_up, signal, upsert

from services.estimator.shard import PAGE, Shard
from shared.contracts.identity import host_id_of, identify, shard_of
from shared.contracts.messages import HostLimit, PageUpdate
from shared.contracts.topics import HOST_LIMITS
from shared.store import writer
from shared.store.erasing import drop_old_erasures
from shared.store.snapshot import load_for_learning, load_shard

ANNOUNCED = [name for name in PAGE.names if name.startswith("announced")]
PAGE_URL, HOST = URLS[0], identify(URLS[0]).host
OF_HOST = [url for url in URLS if identify(url).host == HOST]


def erase(url, at, *, whole_host=False):
    return PageUpdate("remove", url, updated_at=at, for_good=True, whole_host=whole_host)


def kept_of_each(settings, urls):
    """Of each page, how many rows of some tables are about it."""
    tables = ("pages", "page_urls", "erased_pages")
    columns = ", ".join(f"(SELECT count(*) FROM {table} WHERE page_id = id)" for table in tables)
    query = f"SELECT {columns} FROM unnest(%s::int8[]) WITH ORDINALITY AS asked(id, n) ORDER BY n"
    page_ids = [identify(url).page_id for url in urls]
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return [list(row) for row in connection.execute(query, (page_ids,))]


def kept_of(settings, url):
    return kept_of_each(settings, [url])[0]


def assert_memory_is_the_database(handler, settings):
    """Row by row, what an estimator has in memory is what it would load."""
    for number, shard in handler._shards.items():
        snapshot = load_for_learning(settings.database_url.get_secret_value(), number)
        loaded = Shard.load(snapshot)
        page_ids = loaded.pages["page_id"]
        assert sorted(shard.pages["page_id"]) == sorted(page_ids)
        rows = shard.rows_of(page_ids.copy())
        for name in set(PAGE.names) - {"host", "several", "is_read", *ANNOUNCED}:
            np.testing.assert_array_equal(shard.pages[name][rows], loaded.pages[name], name)
        for mine, stored in zip(shard.rings, loaded.rings, strict=True):
            np.testing.assert_array_equal(mine[rows], stored[: rows.size])


def nobody_answers(settings, urls):
    """Requests for pages were not answered."""
    rows = [(shard_of(page.host, SHARDS), page.page_id) for page in map(identify, urls)]
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        query = "INSERT INTO unanswered_pages VALUES (%s, %s, 3, 0, 0, 0)"
        connection.cursor().executemany(query, rows)


def unanswered(settings):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        rows = connection.execute("SELECT page_id FROM unanswered_pages").fetchall()
        return [page_id for (page_id,) in rows]


async def late_records(handler, kafka):
    """What is still in the topics of a page when it is erased."""
    await handler.handle(kafka.batch(erase(PAGE_URL, NOW + 4 * DAY)))
    await handler.handle(kafka.batch(crawl(PAGE_URL, NOW + 5 * DAY, "changed")))
    await handler.handle(kafka.batch(signal(PAGE_URL, NOW + 5 * DAY)))
    await handler.handle(kafka.batch(upsert(PAGE_URL, NOW + 3 * DAY, importance=9.0)))


async def test_nothing_is_kept_of_a_page_and_nothing_late_brings_it_back(settings, start, kafka):
    handler = await grown_up(start, kafka)
    nobody_answers(settings, URLS[:2])
    others = [
        row for row in contents(settings)["pages"] if str(identify(PAGE_URL).page_id) not in row[0]
    ]
    await handler.handle(kafka.batch(erase(PAGE_URL, NOW + 4 * DAY)))
    assert kept_of(settings, PAGE_URL) == [0, 0, 1]
    assert contents(settings)["pages"] == others
    assert unanswered(settings) == [identify(URLS[1]).page_id]
    for reader in (handler, await start(kafka)):
        await late_records(reader, kafka)
        assert kept_of(settings, PAGE_URL) == [0, 0, 1]
        assert_memory_is_the_database(reader, settings)
    loaded = load_shard(settings.database_url.get_secret_value(), shard_of(HOST, SHARDS))
    noted = dict(zip(loaded.erased.page_ids, loaded.erased.removed_at, strict=True))
    assert noted[identify(PAGE_URL).page_id] == NOW + 4 * DAY
    # No dead letter: it was known, and crawlers had it in hand.
    assert kafka.refused == []
    await reader.handle(kafka.batch(upsert(PAGE_URL, NOW + 6 * DAY)))
    loaded = load_for_learning(settings.database_url.get_secret_value(), shard_of(HOST, SHARDS))
    row = loaded.pages.page_ids.tolist().index(identify(PAGE_URL).page_id)
    assert (loaded.learning.crawls[row], loaded.pages.signal_count[row]) == (0, 0)
    assert loaded.learning.first_seen_at[row] == NOW + 6 * DAY


async def test_of_a_page_that_comes_back_in_the_same_batch_nothing_is_remembered(
    settings, start, kafka
):
    handler = await grown_up(start, kafka)
    again = upsert(PAGE_URL, NOW + 5 * DAY)
    await handler.handle(kafka.batch(erase(PAGE_URL, NOW + 4 * DAY), again))
    assert kept_of(settings, PAGE_URL) == [1, 1, 0]
    loaded = load_for_learning(settings.database_url.get_secret_value(), shard_of(HOST, SHARDS))
    row = loaded.pages.page_ids.tolist().index(identify(PAGE_URL).page_id)
    assert (loaded.learning.crawls[row], loaded.histories.seen[row]) == (0, 0)
    assert np.isnan(loaded.pages.unsignalled_change_rate[row])
    assert_memory_is_the_database(handler, settings)


async def test_memory_forgets_what_is_erased_among_other_work(settings, start, kafka):
    handler = await grown_up(start, kafka)
    rng = np.random.default_rng(7)
    for turn in range(6):
        at = NOW + (5 + turn) * DAY
        gone = rng.choice(URLS, 12, replace=False).tolist()
        back = rng.choice(URLS, 8, replace=False).tolist()
        kept = kept_of_each(settings, URLS)
        known = [url for url, (pages, *_) in zip(URLS, kept, strict=True) if pages]
        await handler.handle(
            kafka.batch(
                *(erase(url, at) for url in gone),
                *(upsert(url, at + 1) for url in back),
                *(crawl(url, at + 2) for url in known),
            )
        )
        assert_memory_is_the_database(handler, settings)
        # Nothing of the pages whose rows they have in memory now.
        for url in set(back) - set(known):
            shard = handler._shards[shard_of(identify(url).host, SHARDS)]
            row = shard.rows_of(np.array([identify(url).page_id]))
            assert shard.pages["crawls"][row] == shard.pages["signal_count"][row] == 0
            assert shard.rings.totals[row].sum() == shard.rings.seen[row].sum() == 0
    assert kafka.refused == []


async def test_what_is_erased_is_not_written_first(settings, start, kafka, monkeypatch):
    """The histories of a host's pages together may be longer than a statement."""
    handler = await grown_up(start, kafka)
    monkeypatch.setattr(writer, "update_pages", lambda *_: pytest.fail("a page was written"))
    erasure = erase(f"https://{HOST}/", NOW + 4 * DAY, whole_host=True)
    await handler.handle(kafka.batch(erasure, erase(URLS[1], NOW + 4 * DAY)))
    erased = (*OF_HOST, URLS[1])
    assert kept_of_each(settings, erased) == [[0, 0, 1]] * len(erased)


async def test_a_batch_that_fails_has_erased_nothing(settings, start, kafka, monkeypatch):
    handler = await grown_up(start, kafka)
    commit = handler._store.commit

    def fails(batch):
        monkeypatch.setattr(handler._store, "commit", commit)
        commit(batch)
        raise psycopg.OperationalError("the answer was lost")

    monkeypatch.setattr(handler._store, "commit", fails)
    await handler.handle(kafka.batch(*(erase(url, NOW + 4 * DAY) for url in URLS[:20])))
    assert kept_of_each(settings, URLS[:20]) == [[0, 0, 1]] * 20
    assert_memory_is_the_database(handler, settings)


async def test_a_host_is_erased_with_its_pages_and_rules(settings, start, kafka):
    handler = await grown_up(start, kafka)
    shard, host_id = shard_of(HOST, SHARDS), host_id_of(HOST)
    at = NOW + 5 * DAY
    handler._clock.time = at - 60.0
    await handler.handle(kafka.batch(HostLimit(HOST, 3.0), crawl(OF_HOST[1], NOW + 4 * DAY)))
    handler._clock.time = NOW + 30 * DAY
    await handler.handle(kafka.batch(erase(f"https://{HOST}/", at, whole_host=True)))
    assert kept_of_each(settings, OF_HOST) == [[0, 0, 1]] * len(OF_HOST)
    loaded = load_shard(settings.database_url.get_secret_value(), shard)
    assert host_id not in loaded.hosts.host_ids
    assert loaded.erased_hosts == {host_id: at}
    assert len(contents(settings)["pages"]) == len(URLS) - len(OF_HOST)
    assert HOST not in handler._shards[shard].hosts.names
    for reader in (handler, await start(kafka)):
        await reader.handle(kafka.batch(*(crawl(url, at + 1) for url in OF_HOST)))
        await reader.handle(kafka.batch(*(signal(url, at + 1) for url in OF_HOST)))
        # Neither a page that was known, nor one that nobody had heard of yet.
        older = [upsert(url, at - 1) for url in (*OF_HOST, f"https://{HOST}/new")]
        await reader.handle(kafka.batch(*older))
        await reader.handle({HOST_LIMITS.name: {shard: [tombstone(reader, shard)]}})
        assert (
            host_id
            not in load_shard(settings.database_url.get_secret_value(), shard).hosts.host_ids
        )
    assert kafka.refused == []
    await reader.handle(kafka.batch(upsert(OF_HOST[0], at + 2)))
    loaded = load_shard(settings.database_url.get_secret_value(), shard)
    rules = loaded.hosts.rules[loaded.hosts.host_ids.tolist().index(host_id)]
    assert np.isnan(rules["max_crawls_per_second"])


def tombstone(handler, shard):
    """The limit of the host is taken back, before or after it was erased."""
    offset = handler._positions.get((HOST_LIMITS.name, shard), 0)
    return ConsumerRecord(
        HOST_LIMITS.name, shard, offset, 0, 0, HOST.encode(), None, None, 0, 0, ()
    )


async def test_a_newer_page_of_a_host_that_is_erased_stays(settings, start, kafka):
    handler = await grown_up(start, kafka)
    at = NOW + 5 * DAY
    newer = f"https://{HOST}/new"
    handler._clock.time = at - 60.0
    await handler.handle(
        kafka.batch(
            HostLimit(HOST, 3.0),
            erase(f"https://{HOST}/", at, whole_host=True),
            upsert(newer, at + 1),
        )
    )
    assert kept_of(settings, newer) == [1, 1, 0]
    assert kept_of(settings, OF_HOST[0]) == [0, 0, 1]
    loaded = load_shard(settings.database_url.get_secret_value(), shard_of(HOST, SHARDS))
    rules = loaded.hosts.rules[loaded.hosts.host_ids.tolist().index(host_id_of(HOST))]
    assert np.isnan(rules["max_crawls_per_second"])
    await handler.handle(kafka.batch(crawl(newer, at + 2)))
    assert kafka.refused == []
    assert_memory_is_the_database(handler, settings)


async def test_that_something_was_erased_is_forgotten_once_no_topic_has_it(settings, start, kafka):
    handler = await grown_up(start, kafka)
    others = [url for url in URLS if url not in OF_HOST][:3]
    await handler.handle(kafka.batch(*(erase(url, NOW + 4 * DAY) for url in others)))
    await handler.handle(kafka.batch(erase(f"https://{HOST}/", NOW + 4 * DAY, whole_host=True)))
    url = settings.database_url.get_secret_value()
    assert drop_old_erasures(url, NOW + 4 * DAY) == 0
    assert drop_old_erasures(url, NOW + 4 * DAY + 1) == len(others) + len(OF_HOST) + 1
    assert kept_of_each(settings, [others[0], PAGE_URL]) == [[0, 0, 0]] * 2
    erased = load_shard(url, shard_of(HOST, SHARDS)).erased_hosts
    assert erased == {}, "the host's hash goes with those of its pages"


@pytest.mark.parametrize("options", [{"for_good": True}, {"whole_host": True}])
def test_only_what_is_removed_can_be_erased(options):
    with pytest.raises(ValueError, match="belong to `remove`"):
        PageUpdate("upsert", PAGE_URL, **options)


async def test_of_an_erasure_and_an_update_of_one_time_the_last_one_holds(settings, start, kafka):
    """Programs whose clock has whole seconds send both within one; schedulers go in order, too."""
    handler = await grown_up(start, kafka)
    at = NOW + 5 * DAY
    handler._clock.time = at + 60.0
    before, after = OF_HOST[:2]
    whole = erase(f"https://{HOST}/", at, whole_host=True)
    await handler.handle(kafka.batch(upsert(before, at), whole, upsert(after, at)))
    assert kept_of(settings, before) == [0, 0, 1]
    assert kept_of(settings, after)[:2] == [1, 1]
    assert_memory_is_the_database(handler, settings)


@pytest.mark.parametrize("is_loaded_anew", [False, True])
async def test_what_is_erased_again_is_erased_from_then_on(settings, start, kafka, is_loaded_anew):
    """Nothing that is still under way brings it back: schedulers go by the last time, too."""
    handler = await grown_up(start, kafka)
    at = NOW + 5 * DAY
    handler._clock.time = at + 60.0
    stranger = "https://host-9.example/never-heard-of"
    unheard_of = "https://host-9.example/new"
    await handler.handle(kafka.batch(erase(PAGE_URL, at)))
    await handler.handle(kafka.batch(erase(PAGE_URL, at + 20), erase(stranger, at + 20)))
    host = erase(stranger, at + 20, whole_host=True)
    await handler.handle(kafka.batch(host))
    if is_loaded_anew:
        for number in range(SHARDS):
            await handler._load(number)
    late = (upsert(url, at + 10) for url in (PAGE_URL, unheard_of))
    await handler.handle(kafka.batch(*late))
    assert kept_of_each(settings, [PAGE_URL, unheard_of]) == [[0, 0, 1], [0, 0, 0]]
    # Of a page that never was nothing is kept.
    assert kept_of(settings, stranger) == [0, 0, 0]
    await handler.handle(kafka.batch(*(upsert(url, at + 30) for url in (PAGE_URL, unheard_of))))
    assert [kept[0] for kept in kept_of_each(settings, [PAGE_URL, unheard_of])] == [1, 1]
