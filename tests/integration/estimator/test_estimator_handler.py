"""The estimator's batches against a real PostgreSQL: nothing lost, nothing twice."""

import asyncio

import numpy as np
import psycopg
import pytest
from aiokafka import ConsumerRecord

from services.estimator.handler import EstimatorHandler
from services.scheduler.selection import Rules
from services.scheduler.shard import Shard as SchedulerShard
from services.scheduler.shard import ShardRules
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import (
    CrawlOutcome,
    HostLimit,
    HostParameters,
    PageParameters,
    PageSignal,
    PageUpdate,
)
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings
from shared.store.imports import StoreBusy, import_pages
from shared.store.migration import StoreMismatch, migrate
from shared.store.snapshot import load_for_learning, load_shard

SHARDS = 4
DAY = 86_400.0
NOW = 1_700_000_000.0
URLS = [f"https://host-{n % 7}.example/page/{n}" for n in range(60)]
TOPICS = {
    PageUpdate: PAGE_UPDATES.name,
    PageSignal: PAGE_SIGNALS.name,
    CrawlOutcome: CRAWL_OUTCOMES.name,
    HostLimit: HOST_LIMITS.name,
}


class Broker:
    """Keeps what is announced, and numbers the records that tests send."""

    def __init__(self):
        self.announced = {shard: [] for shard in range(SHARDS)}
        self.hosts = {shard: [] for shard in range(SHARDS)}
        self.refused = []
        self.fail = False
        self._offsets = {}

    async def publish(self, announcements, refused):
        self.refused += [letter.reason for letter in refused]
        topics = {
            "page-parameters": (self.announced, PageParameters),
            "host-parameters": (self.hosts, HostParameters),
        }
        ends = {}
        for (topic, shard), messages in announcements.items():
            sent, kind = topics[topic]
            sent[shard] += [decode(kind, value) for _, value in messages]
            ends[topic, shard] = len(sent[shard])
        if self.fail:
            raise ConnectionError("the process dies after publishing")
        return ends

    def batch(self, *messages):
        """A batch with these messages, each on its host's partition."""
        batch = {}
        for message in messages:
            topic = TOPICS[type(message)]
            host = message.host if isinstance(message, HostLimit) else identify(message.url).host
            shard = shard_of(host, SHARDS)
            offset = self._offsets.get((topic, shard), 0)
            self._offsets[topic, shard] = offset + 1
            record = ConsumerRecord(
                topic, shard, offset, 0, 0, host.encode(), encode(message), None, 0, 0, ()
            )
            batch.setdefault(topic, {}).setdefault(shard, []).append(record)
        return batch


def upsert(url, at=NOW, **options):
    return PageUpdate("upsert", url, updated_at=at, **options)


def signal(url, at):
    page = identify(url)
    return PageSignal(page.page_id, page.url, page.host, "feed", at)


def crawl(url, at, result="unchanged", **options):
    return CrawlOutcome(url, at, result=result, **options)


@pytest.fixture
def settings(database_url):
    migrate(database_url, SHARDS)
    return Settings(database_url=database_url, partitions=SHARDS)


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
async def start(settings):
    """Starts estimators that own all shards."""
    running = []

    async def begin(broker, shards=range(SHARDS)):
        handler = EstimatorHandler(settings, ManualClock(NOW + 30 * DAY), broker, asyncio.Event())
        running.append(handler)
        await handler.open()
        await handler.assigned(set(shards))
        return handler

    yield begin
    for handler in running:
        await handler.close()


def contents(settings):
    """Everything of all tables that a batch may write."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return {
            # As text: a rate that is not a number is equal to itself there.
            table: connection.execute(f"SELECT {table}::text FROM {table} ORDER BY 1").fetchall()
            for table in ("pages", "page_urls", "hosts", "observations", "stream_positions")
        }


def a_day_of_life(broker):
    """Three batches that touch everything."""
    return [
        broker.batch(*map(upsert, URLS)),
        broker.batch(
            *(crawl(url, NOW + DAY) for url in URLS),
            *(signal(url, NOW + 1.5 * DAY) for url in URLS[::2]),
            HostLimit("host-1.example", 3.0),
        ),
        broker.batch(
            *(crawl(url, NOW + 2 * DAY, "changed") for url in URLS[::2]),
            *(crawl(url, NOW + 3 * DAY) for url in URLS[::2]),
            crawl(URLS[1], NOW + 2 * DAY, "failed", http_status=429, retry_after_seconds=60.0),
            crawl(URLS[3], NOW + 2 * DAY, "gone"),
            PageUpdate("remove", URLS[5], updated_at=NOW + 2 * DAY),
        ),
    ]


async def test_a_batch_is_durable_with_its_positions(settings, start, broker):
    handler = await start(broker)
    for batch in a_day_of_life(broker):
        await handler.handle(batch)
    tables = contents(settings)
    assert len(tables["pages"]) == len(tables["page_urls"]) == len(URLS)
    assert len(tables["observations"]) == 2 * len(URLS[::2])
    url = settings.database_url.get_secret_value()
    for shard in range(SHARDS):
        snapshot = load_shard(url, shard)
        here = [u for u in URLS if shard_of(identify(u).host, SHARDS) == shard]
        active = sorted(identify(u).page_id for u in here if u not in (URLS[3], URLS[5]))
        assert snapshot.pages.page_ids.tolist() == active
        assert (
            snapshot.positions[CRAWL_OUTCOMES.name, shard]
            == broker._offsets[CRAWL_OUTCOMES.name, shard]
        )
        assert snapshot.positions["page-parameters", shard] == len(broker.announced[shard])
        assert snapshot.positions["host-parameters", shard] == len(broker.hosts[shard])
    shard = shard_of("host-1.example", SHARDS)
    hosts = load_shard(url, shard).hosts
    row = hosts.names.index("host-1.example")
    assert hosts.max_crawls_per_second[row] == 3.0
    assert hosts.blocked_until[row] == NOW + 2 * DAY + 60.0
    assert broker.refused == []


async def test_what_is_announced_is_what_is_stored(settings, start, broker):
    handler = await start(broker)
    for batch in a_day_of_life(broker):
        await handler.handle(batch)
    for shard in range(SHARDS):
        pages = load_shard(settings.database_url.get_secret_value(), shard).pages
        known = {message.page_id: message for message in broker.announced[shard]}
        for row, page_id in enumerate(pages.page_ids.tolist()):
            rate = pages.unsignalled_change_rate[row]
            if np.isnan(rate):
                assert page_id not in known or known[page_id].unsignalled_change_rate is None
                continue
            assert known[page_id].unsignalled_change_rate == pytest.approx(
                rate, rel=settings.material_change
            )


async def test_a_restart_goes_on_from_the_same_state(settings, start, broker):
    through, stopped = Broker(), broker
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


async def test_a_replay_changes_nothing(settings, start, broker):
    handler = await start(broker)
    batches = a_day_of_life(broker)
    for batch in batches:
        await handler.handle(batch)
    before = contents(settings)
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute(
            "UPDATE stream_positions SET next_offset = 0 WHERE topic NOT LIKE '%-parameters'"
        )
    announced = {shard: len(messages) for shard, messages in broker.announced.items()}
    hosts = {shard: len(messages) for shard, messages in broker.hosts.items()}
    again = await start(broker)
    for batch in batches:
        await again.handle(batch)
    after = contents(settings)
    assert after == before
    assert announced == {shard: len(messages) for shard, messages in broker.announced.items()}
    assert hosts == {shard: len(messages) for shard, messages in broker.hosts.items()}


async def test_a_crash_between_publishing_and_commit_loses_nothing(settings, start, broker):
    handler = await start(broker)
    first, second, third = a_day_of_life(broker)
    await handler.handle(first)
    before = contents(settings)
    broker.fail = True
    with pytest.raises(ConnectionError):
        await handler.handle(second)
    assert contents(settings) == before
    broker.fail = False
    restarted = await start(broker)
    await restarted.handle(second)
    await restarted.handle(third)
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])


async def test_a_cut_connection_loses_nothing_and_repeats_nothing(settings, start, broker):
    handler = await start(broker)
    first, second, third = a_day_of_life(broker)
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


async def test_a_commit_whose_answer_was_lost_is_not_repeated(settings, start, broker, monkeypatch):
    handler = await start(broker)
    first, second, third = a_day_of_life(broker)
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


async def test_of_two_owners_only_one_commits_and_the_other_catches_up(settings, start, broker):
    old, new = await start(broker), await start(broker)
    first, second, third = a_day_of_life(broker)
    await old.handle(first)
    await new.handle(first)
    await new.handle(second)
    await old.handle(second)
    await old.handle(third)
    await new.handle(third)
    assert len(contents(settings)["observations"]) == 2 * len(URLS[::2])


async def test_it_waits_for_the_database_and_stops_when_told(settings, broker):
    away = settings.model_copy(
        update={"database_url": type(settings.database_url)("postgresql://127.0.0.1:1/none")}
    )
    stopping = asyncio.Event()
    handler = EstimatorHandler(away, ManualClock(NOW), broker, stopping)
    opening = asyncio.create_task(handler.open())
    while not (opening.done() or (handler.trouble or "").startswith("the database cannot")):
        await asyncio.sleep(0.01)
    stopping.set()
    with pytest.raises(psycopg.OperationalError):
        await opening


async def test_another_number_of_shards_is_refused_at_start(settings, broker):
    other = settings.model_copy(update={"partitions": SHARDS + 1})
    handler = EstimatorHandler(other, ManualClock(NOW), broker, asyncio.Event())
    with pytest.raises(StoreMismatch, match="FRESHET_PARTITIONS"):
        await handler.open()


async def test_bad_messages_are_put_aside_and_the_rest_is_done(settings, start, broker):
    handler = await start(broker)
    await handler.handle(broker.batch(*map(upsert, URLS)))
    batch = broker.batch(
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
    assert len(broker.refused) == 5
    assert sum("unknown page" in reason for reason in broker.refused) == 1
    positions = load_shard(settings.database_url.get_secret_value(), shard).positions
    assert positions[CRAWL_OUTCOMES.name, shard] == records[-1].offset + 1
    pages = load_for_learning(settings.database_url.get_secret_value(), shard)
    assert sorted(pages.learning.crawls)[-1] == 1


async def test_shards_come_and_go(settings, start, broker):
    handler = await start(broker, shards=[0, 1])
    for batch in a_day_of_life(broker):
        ours = {t: {p: r for p, r in parts.items() if p < 2} for t, parts in batch.items()}
        await handler.handle({topic: parts for topic, parts in ours.items() if parts})
    await handler.revoked({0})
    positions = await handler.assigned({0, 2})
    assert {shard for _, shard in positions} == {0}
    assert positions[PAGE_UPDATES.name, 0] == broker._offsets[PAGE_UPDATES.name, 0]


async def test_pages_are_not_imported_behind_its_back(settings, start, broker):
    await start(broker)
    url = settings.database_url.get_secret_value()
    with pytest.raises(StoreBusy):
        import_pages(url, SHARDS, [], now=NOW)


async def test_random_orders_and_repeats_end_in_the_same_times(settings, start, broker):
    """At-least-once delivery in any cut of batches: the newest facts win."""
    handler = await start(broker)
    await handler.handle(broker.batch(*map(upsert, URLS[:5])))
    random = np.random.default_rng(5)
    events = [
        event
        for url in URLS[:5]
        for day in range(1, 6)
        for event in (crawl(url, NOW + day * DAY), signal(url, NOW + (day + 0.5) * DAY))
    ]
    repeated = [events[i] for i in random.permutation(np.tile(np.arange(len(events)), 2))]
    for begin in range(0, len(repeated), 17):
        await handler.handle(broker.batch(*repeated[begin : begin + 17]))
    for url in URLS[:5]:
        page = identify(url)
        pages = load_shard(
            settings.database_url.get_secret_value(), shard_of(page.host, SHARDS)
        ).pages
        row = pages.page_ids.tolist().index(page.page_id)
        assert pages.last_crawled_at[row] == NOW + 5 * DAY
        assert pages.last_signal_at[row] == NOW + 5.5 * DAY
        assert pages.signals[row] == 1


async def test_priors_are_refitted_stored_and_announced_for_all_shards(settings, start, broker):
    handler = await start(broker)
    await handler.handle(broker.batch(*map(upsert, URLS)))
    busy = [url for url in URLS if identify(url).host != "host-0.example"]
    for day in range(1, 12):
        await handler.handle(
            broker.batch(*(crawl(url, NOW + day * DAY, "changed") for url in busy))
        )
    url = settings.database_url.get_secret_value()
    quiet = shard_of("host-0.example", SHARDS)
    for shard in range(SHARDS):
        hosts = load_shard(url, shard).hosts
        means = dict(zip(hosts.names, hosts.prior_shape / hosts.prior_rate, strict=True))
        assert min(means.values(), default=1.0) > 2 / 60, "busy pages everywhere"
        last = {message.host: message for message in broker.hosts[shard]}
        for host, mean in means.items():
            assert last[host].unsignalled_change_rate == pytest.approx(
                mean, rel=settings.material_change
            )
    # Of a page that was never observed nothing is written: it follows its host by itself.
    pages = load_shard(url, quiet).pages
    page_id = next(identify(u).page_id for u in URLS if identify(u).host == "host-0.example")
    assert np.isnan(pages.unsignalled_change_rate[pages.page_ids == page_id]).all()
    restarted = await start(broker)
    tables = contents(settings)
    await restarted.handle(broker.batch(signal(URLS[0], NOW + 20 * DAY)))
    assert len(contents(settings)["hosts"]) == len(tables["hosts"])


async def test_a_scheduler_learns_the_same_from_the_topic_and_from_the_database(
    settings, start, broker
):
    handler = await start(broker)
    for batch in a_day_of_life(broker):
        await handler.handle(batch)
    await handler.handle(broker.batch(*(signal(u, NOW + 9 * DAY) for u in URLS)))
    rules = ShardRules(Rules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0)
    for number in range(SHARDS):
        snapshot = load_shard(settings.database_url.get_secret_value(), number)
        loaded, told = (SchedulerShard.from_snapshot(snapshot, rules) for _ in range(2))
        told.host_parameters(broker.hosts[number])
        for name in ("alpha", "kappa"):
            np.testing.assert_allclose(
                told.pages[name][: told.used], loaded.pages[name][: told.used], rtol=0.06
            )
        pages = loaded.pages[: loaded.used]
        signalled = pages["signals"] > 0
        assert signalled.all()
        assert (pages["gamma"] > 0).all()
