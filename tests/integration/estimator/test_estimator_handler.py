"""The estimator's batches against a real PostgreSQL: nothing lost, nothing twice."""

import asyncio

import numpy as np
import psycopg
import pytest
from aiokafka import ConsumerRecord
from estimator_world import (
    DAY,
    NOW,
    SHARDS,
    URLS,
    Broker,
    a_day_of_life,
    assert_schedulers_know,
    contents,
    crawl,
    signal,
    upsert,
)
from page_batches import page_batch

from services.estimator.handler import EstimatorHandler
from services.scheduler.flow.loading import build_shard, shard_rules
from shared.contracts.identity import identify, shard_of
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES
from shared.runtime.clock import ManualClock
from shared.store.deployment import StoreMismatch
from shared.store.imports import import_pages
from shared.store.page_status import GONE, NEVER
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.writer_lock import StoreBusy


async def test_a_batch_is_durable_with_its_positions(settings, start, kafka):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    tables = contents(settings)
    assert len(tables["pages"]) == len(tables["page_urls"]) == len(URLS)
    assert len(tables["observations"]) == 2 * len(URLS[::2])
    url = settings.database_url.get_secret_value()
    for shard in range(SHARDS):
        snapshot = load_shard(url, shard)
        here = [u for u in URLS if shard_of(identify(u).host, SHARDS) == shard]
        kept = sorted((identify(u).page_id, u == URLS[3]) for u in here if u != URLS[5])
        assert snapshot.pages.page_ids.tolist() == [page_id for page_id, _ in kept]
        is_gone = snapshot.pages.status == GONE
        assert is_gone.tolist() == [gone for _, gone in kept]
        assert (
            snapshot.positions[CRAWL_OUTCOMES.name, shard]
            == kafka._offsets[CRAWL_OUTCOMES.name, shard]
        )
        assert snapshot.positions["page-parameters", shard] == len(kafka.announced[shard])
        assert snapshot.positions["host-parameters", shard] == len(kafka.hosts[shard])
    shard = shard_of("host-1.example", SHARDS)
    hosts = load_shard(url, shard).hosts
    row = hosts.names.index("host-1.example")
    assert hosts.rules["max_crawls_per_second"][row] == 3.0
    assert hosts.rules["asked_until"][row] == NOW + 2 * DAY + 60.0
    assert kafka.refused == []


def positions_of(settings, shard):
    return load_shard(settings.database_url.get_secret_value(), shard).positions


async def test_the_end_of_a_transaction_is_passed_for_good(settings, start, kafka):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    key = (CRAWL_OUTCOMES.name, 0)
    offset = positions_of(settings, 0)[key]
    await handler.reached({key: offset + 1})
    assert positions_of(settings, 0)[key] == offset + 1
    await handler.reached({key: offset - 1})
    assert positions_of(settings, 0)[key] == offset + 1
    await handler.handle(kafka.batch(crawl(URLS[0], NOW + 3 * DAY)))
    assert handler.trouble is None


async def test_who_lost_a_shard_notes_no_positions(settings, start, kafka):
    """The other owner's stay, and the next batch begins from them."""
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    key = (CRAWL_OUTCOMES.name, 0)
    before = positions_of(settings, 0)[key]
    await start(kafka)
    await handler.reached({key: before + 1})
    assert positions_of(settings, 0)[key] == before


async def test_what_is_announced_is_what_is_stored(settings, start, kafka):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    assert_schedulers_know(settings, kafka)


async def test_a_restart_goes_on_from_the_same_state(settings, start, kafka):
    through, stopped = Broker(), kafka
    batches = a_day_of_life(stopped)
    for batch in batches:
        handler = await start(stopped)
        await handler.handle(batch)
        await handler.close()
    tables = contents(settings)
    assert load_for_learning(settings.database_url.get_secret_value(), 0).histories.seen.max() == 2
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute("TRUNCATE pages, page_urls, hosts, observations, stream_positions")
    handler = await start(through)
    for batch in a_day_of_life(through):
        await handler.handle(batch)
    straight = contents(settings)
    for table in tables:
        assert straight[table] == tables[table] or table == "stream_positions"


async def test_a_replay_changes_nothing(settings, start, kafka):
    handler = await start(kafka)
    batches = a_day_of_life(kafka)
    for batch in batches:
        await handler.handle(batch)
    before = contents(settings)
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute(
            "UPDATE stream_positions SET next_offset = 0 WHERE topic NOT LIKE '%-parameters'"
        )
    again = await start(kafka)
    announced = {shard: len(messages) for shard, messages in kafka.announced.items()}
    hosts = {shard: len(messages) for shard, messages in kafka.hosts.items()}
    for batch in batches:
        await again.handle(batch)
    after = contents(settings)
    for tables in (before, after):
        # How far the announcements reach: the new owner repeats the last ones.
        tables["stream_positions"] = [
            row for row in tables["stream_positions"] if "-parameters" not in row[0]
        ]
    assert after == before
    assert announced == {shard: len(messages) for shard, messages in kafka.announced.items()}
    assert hosts == {shard: len(messages) for shard, messages in kafka.hosts.items()}


async def test_what_a_process_does_not_come_to_announce_the_next_one_does(settings, start, kafka):
    handler = await start(kafka)
    first, second, third = a_day_of_life(kafka)
    await handler.handle(first)
    kafka.fail = True
    with pytest.raises(ConnectionError):
        await handler.handle(second)
    kafka.fail = False
    await start(kafka)
    assert_schedulers_know(settings, kafka)
    told = {message.host for messages in kafka.hosts.values() for message in messages}
    assert told == {identify(url).host for url in URLS}
    restarted = await start(kafka)
    await restarted.handle(third)
    assert_schedulers_know(settings, kafka)
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])


async def test_what_is_not_durable_is_not_announced(settings, start, kafka, monkeypatch):
    handler = await start(kafka)
    first, second, _ = a_day_of_life(kafka)
    await handler.handle(first)

    def die(_batch):
        raise ConnectionError("the process dies before the commit")

    monkeypatch.setattr(handler._store, "commit", die)
    before = contents(settings), {shard: len(sent) for shard, sent in kafka.announced.items()}
    with pytest.raises(ConnectionError):
        await handler.handle(second)
    assert before == (
        contents(settings),
        {shard: len(sent) for shard, sent in kafka.announced.items()},
    )


async def test_a_cut_connection_loses_nothing_and_repeats_nothing(settings, start, kafka):
    handler = await start(kafka)
    first, second, third = a_day_of_life(kafka)
    await handler.handle(first)
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        killed = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = 'freshet-estimator' AND datname = current_database()"
        ).fetchone()
    assert killed == (1,)
    await handler.handle(second)
    await handler.handle(third)
    assert handler.trouble is None
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])


async def test_a_commit_whose_answer_was_lost_is_not_repeated(settings, start, kafka, monkeypatch):
    handler = await start(kafka)
    first, second, third = a_day_of_life(kafka)
    await handler.handle(first)
    await handler.handle(second)
    commit = handler._store.commit
    failures = iter([True])

    def commit_and_lose_the_answer(*arguments):
        commit(*arguments)
        if next(failures, False):
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(handler._store, "commit", commit_and_lose_the_answer)
    await handler.handle(third)
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])


async def test_of_two_owners_only_one_commits_and_the_other_catches_up(settings, start, kafka):
    old, new = await start(kafka), await start(kafka)
    first, second, third = a_day_of_life(kafka)
    await old.handle(first)
    await new.handle(first)
    await new.handle(second)
    await old.handle(second)
    await old.handle(third)
    await new.handle(third)
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])


async def test_it_waits_for_the_database_and_stops_when_told(settings, kafka):
    away = settings.model_copy(
        update={"database_url": type(settings.database_url)("postgresql://127.0.0.1:1/none")}
    )
    stopping = asyncio.Event()
    handler = EstimatorHandler(away, ManualClock(NOW), kafka, stopping)
    opening = asyncio.create_task(handler.open())
    while not (opening.done() or (handler.trouble or "").startswith("the database cannot")):
        await asyncio.sleep(0.01)
    stopping.set()
    with pytest.raises(psycopg.OperationalError):
        await opening


async def test_another_number_of_shards_is_refused_at_start(settings, kafka):
    other = settings.model_copy(update={"partitions": SHARDS + 1})
    handler = EstimatorHandler(other, ManualClock(NOW), kafka, asyncio.Event())
    with pytest.raises(StoreMismatch, match="FRESHET_PARTITIONS"):
        await handler.open()


async def test_bad_messages_are_put_aside_and_the_rest_is_done(settings, start, kafka):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    batch = kafka.batch(
        crawl(URLS[0], NOW + DAY),
        crawl("https://host-0.example/unknown", NOW + DAY),
        crawl(URLS[0], NOW + 1000 * DAY),
        crawl(URLS[0], NOW + DAY),
    )
    shard = shard_of("host-0.example", SHARDS)
    records = batch[CRAWL_OUTCOMES.name][shard]
    template = records[-1]
    for value in (b"not json", None, b'{"url": 5}'):
        record = ConsumerRecord(
            template.topic, shard, records[-1].offset + 1, 0, 0, None, value, None, 0, 0, ()
        )
        records.append(record)
    await handler.handle(batch)
    assert len(kafka.refused) == 5
    assert sum("unknown page" in reason for reason in kafka.refused) == 1
    positions = load_shard(settings.database_url.get_secret_value(), shard).positions
    assert positions[CRAWL_OUTCOMES.name, shard] == records[-1].offset + 1
    pages = load_for_learning(settings.database_url.get_secret_value(), shard)
    assert sorted(pages.learning.crawls)[-1] == 1


async def test_shards_come_and_go(settings, start, kafka):
    handler = await start(kafka, shards=[0, 1])
    for batch in a_day_of_life(kafka):
        ours = {t: {p: r for p, r in parts.items() if p < 2} for t, parts in batch.items()}
        await handler.handle({topic: parts for topic, parts in ours.items() if parts})
    await handler.revoked({0})
    positions = await handler.assigned({0, 2})
    assert {shard for _, shard in positions} == {0}
    assert positions[PAGE_UPDATES.name, 0] == kafka._offsets[PAGE_UPDATES.name, 0]


async def test_pages_are_not_imported_behind_its_back(settings, start, kafka):
    await start(kafka)
    url = settings.database_url.get_secret_value()
    with pytest.raises(StoreBusy):
        import_pages(url, SHARDS, [], now=NOW)


async def test_pages_that_were_imported_while_it_was_cut_off_are_known(settings, start, kafka):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS[:30])))
    url = settings.database_url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = 'freshet-estimator' AND datname = current_database()"
        )
    new = URLS[30:]
    assert import_pages(url, SHARDS, [page_batch(new)], now=NOW).added == len(new)
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS)))
    assert kafka.refused == []
    assert sum(int(load_for_learning(url, n).learning.crawls.sum()) for n in range(SHARDS)) == 60


async def test_random_orders_and_repeats_end_in_the_same_times(settings, start, kafka):
    """At-least-once delivery in any cut of batches: the newest facts win."""
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS[:5])))
    random = np.random.default_rng(5)
    events = [
        event
        for url in URLS[:5]
        for day in range(1, 6)
        for event in (crawl(url, NOW + day * DAY), signal(url, NOW + (day + 0.5) * DAY))
    ]
    repeated = [events[i] for i in random.permutation(np.tile(np.arange(len(events)), 2))]
    for begin in range(0, len(repeated), 17):
        await handler.handle(kafka.batch(*repeated[begin : begin + 17]))
    for url in URLS[:5]:
        page = identify(url)
        snapshot = load_shard(settings.database_url.get_secret_value(), shard_of(page.host, SHARDS))
        pages = snapshot.pages
        row = pages.page_ids.tolist().index(page.page_id)
        assert pages.last_crawled_at[row] == NOW + 5 * DAY
        assert pages.last_signal_at[row] == NOW + 5.5 * DAY
        assert snapshot.pending[row].sum() == 1


async def test_signals_by_source_outlive_a_restart(settings, start, kafka):
    """What each source said last is known to whoever loads the shard, for late signals and late
    news of crawls."""
    page = identify(URLS[0])
    shard = shard_of(page.host, SHARDS)
    first = await start(kafka)
    await first.handle(kafka.batch(upsert(page.url), crawl(page.url, NOW)))
    spoke = [("ping", 5), ("map", 3), ("hub", 4), ("ping", 6)]
    for source, day in spoke:
        await first.handle(kafka.batch(signal(page.url, NOW + day * DAY, source)))
    snapshot = load_shard(settings.database_url.get_secret_value(), shard)
    scheduler = build_shard(snapshot, shard_rules(settings, ManualClock(NOW)))
    row = scheduler.row_of(page.page_id)
    wanted = [NOW + 6 * DAY, NOW + 3 * DAY, NOW + 4 * DAY, NEVER]
    assert scheduler.signal_times.by_source(row) == wanted
    again = await start(kafka)
    late = [("map", 3), ("hub", 4.5), ("map", 2)]
    await again.handle(
        kafka.batch(*(signal(page.url, NOW + day * DAY, source) for source, day in late))
    )
    await again.handle(kafka.batch(crawl(page.url, NOW + 4.2 * DAY)))
    snapshot = load_shard(settings.database_url.get_secret_value(), shard)
    row = snapshot.pages.page_ids.tolist().index(page.page_id)
    assert snapshot.pending[row].tolist() == [1, 0, 1, 0]


async def test_outcomes_and_signals_before_the_first_page_do_no_harm(start, kafka):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS)))
    await handler.handle(kafka.batch(*(signal(url, NOW + DAY) for url in URLS)))
    assert {"unknown page" in reason for reason in kafka.refused} == {True}
    assert len(kafka.refused) == len(URLS)


async def test_a_shard_of_a_single_page_goes_on_after_a_restart(settings, start, kafka):
    handler = await start(kafka)
    await handler.handle(kafka.batch(upsert(URLS[0])))
    again = await start(kafka)
    await again.handle(kafka.batch(crawl(URLS[0], NOW + DAY), signal(URLS[0], NOW + 2 * DAY)))
    assert kafka.refused == []
    shard = shard_of(identify(URLS[0]).host, SHARDS)
    learned = load_for_learning(settings.database_url.get_secret_value(), shard).learning
    assert learned.crawls.tolist() == [1]
