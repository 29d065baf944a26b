"""A worker that waits for longer than its group would have patience stays a member of it."""

import asyncio
import uuid
from collections import Counter

import psycopg
import pytest
from group_member import member, until
from prometheus_client import REGISTRY
from workers import settings_for, worker

from migrations.upgrade import migrate
from services.estimator.handler import EstimatorHandler
from services.estimator.worker import TOPICS as ESTIMATED
from services.ingester.reading import SignalReader
from shared.contracts.identity import identify
from shared.contracts.messages import PageSignal, PageUpdate
from shared.contracts.topics import PAGE_SIGNALS, PAGE_UPDATES, SIGNALS
from shared.runtime import consumer, group_reading, kafka, lag
from shared.runtime.consumer import BatchConsumer
from shared.runtime.kafka import ensure_topics

PATIENCE_MS = 1500
"""Of the group, instead of five minutes."""

WAIT_SECONDS = 4.0
"""Longer than that."""

HOSTS = [f"host-{number}.example" for number in range(40)]


@pytest.fixture(autouse=True)
def impatient_groups(monkeypatch):
    def make_consumer(settings, group=None, **options):
        if group is not None:
            options["max_poll_interval_ms"] = PATIENCE_MS
        return kafka.make_consumer(settings, group, **options)

    monkeypatch.setattr(consumer, "make_consumer", make_consumer)
    monkeypatch.setattr(group_reading, "make_consumer", make_consumer)
    monkeypatch.setattr(lag, "REPORT_SECONDS", 0.2)


@pytest.fixture
async def settings(broker):
    made = settings_for(
        broker.bootstrap_servers,
        f"wait-{uuid.uuid4().hex[:8]}",
        kafka_session_timeout_seconds=6.0,
    )
    await ensure_topics(made)
    return made


async def publish(publisher):
    for host in HOSTS:
        signal = PageSignal("0" * 32, f"https://{host}/", host, "cms", 1.0)
        await publisher.send_for_host(PAGE_SIGNALS, host, signal)
    await publisher.flush()


class Durable:
    """A handler over a database that may be away: it waits, and goes on."""

    def __init__(self):
        self.positions = {}
        self.seen = Counter()
        self.there = asyncio.Event()
        self.there.set()
        self.waiting = 0
        self.owned = set()

    async def _wait(self):
        self.waiting += 1
        await self.there.wait()
        self.waiting -= 1

    async def assigned(self, partitions):
        await self._wait()
        self.owned |= partitions
        return dict(self.positions)

    async def revoked(self, partitions):
        self.owned -= partitions

    async def handle(self, batch, waits=True):
        if waits:
            await self._wait()
        for topic, partitions in batch.items():
            for partition, records in partitions.items():
                self.seen.update((topic, partition, record.offset) for record in records)
                self.positions[topic, partition] = records[-1].offset + 1

    def once(self, count):
        return len(self.seen) == count and set(self.seen.values()) <= {1}


def lag_of(topic):
    return REGISTRY.get_sample_value("freshet_consumer_lag_records", {"topic": topic})


async def test_a_handler_that_waits_keeps_its_partitions(settings, publisher):
    database = Durable()
    async with member(settings, database) as one:
        await until(lambda: len(one.partitions) == settings.partitions)
        generation = one._rebalances.generation
        database.there.clear()
        await publish(publisher)
        await until(lambda: database.waiting)
        await asyncio.sleep(WAIT_SECONDS)
        # What comes meanwhile waits too, and the lag says so.
        await publish(publisher)
        await until(lambda: lag_of(PAGE_SIGNALS.name) == 2 * len(HOSTS))
        assert one.settled
        database.there.set()
        await until(lambda: database.once(2 * len(HOSTS)))
        assert one._rebalances.generation == generation
        await until(lambda: lag_of(PAGE_SIGNALS.name) == 0)


async def test_partitions_that_go_away_while_a_handler_waits_are_read_elsewhere(
    settings, publisher
):
    database, other = Durable(), Durable()
    other.positions = database.positions
    async with member(settings, database) as one:
        await until(lambda: len(one.partitions) == settings.partitions)
        database.there.clear()
        await publish(publisher)
        await until(lambda: database.waiting)
        await asyncio.sleep(WAIT_SECONDS)
        second = settings.model_copy(update={"instance": "two"})
        async with member(second, other) as two:
            # The group shares out anew, and does not wait for the batch at hand.
            await until(lambda: two.settled and len(two.partitions) == 2)
            database.there.set()
            await until(lambda: one.settled and len(one.partitions) == 2)
            await publish(publisher)
            await until(lambda: len(database.seen | other.seen) == 2 * len(HOSTS))
            # Each batch of its own partitions comes once; the one at hand was one's to finish.
            assert set(database.seen.values()) == {1}


@pytest.mark.parametrize("beside", [False, True])
async def test_a_load_may_take_longer_than_the_group_has_patience(settings, publisher, beside):
    database = Durable()
    database.there.clear()
    await publish(publisher)
    async with member(settings, database, loads_beside=beside) as one:
        await until(lambda: database.waiting)
        await asyncio.sleep(WAIT_SECONDS)
        database.there.set()
        await until(lambda: database.once(len(HOSTS)))
        assert one._rebalances.generation == 2  # the first decision is the only one


async def test_kept_partitions_are_read_on_while_a_load_waits_and_the_group_decides_anew(
    settings, publisher
):
    """A database that is away stops what has to be loaded, and nothing else."""
    positions, members = {}, {}

    def handler(name):
        made = members[name] = Durable()
        made.positions = positions
        # Only loads wait: what has to be done for a batch needs no database.
        made.handle = lambda batch, made=made: Durable.handle(made, batch, waits=False)
        return made

    def named(name):
        return settings.model_copy(update={"instance": name})

    async with member(named("one"), handler("one"), loads_beside=True) as one:
        await until(lambda: one.settled and len(one.partitions) == 4)
        async with member(named("two"), handler("two"), loads_beside=True) as two:
            await until(lambda: one.settled and len(one.partitions) == 2 == len(two.partitions))
            kept = one.partitions
            members["one"].there.clear()
        # The second one is gone; what it had is to be loaded, and that waits.
        await until(lambda: one.settled and one.is_loading)
        async with member(named("three"), handler("three"), loads_beside=True) as three:
            await until(lambda: one.settled and three.settled and len(three.partitions) == 2)
            assert one.partitions & kept
            await publish(publisher)
            theirs = members["three"].seen
            await until(lambda: served(members["one"], theirs) >= one.partitions | three.partitions)
            members["one"].there.set()
            await until(lambda: len(one.partitions) == 2 and not one.is_loading)
            await until(lambda: len(members["one"].seen | theirs) == len(HOSTS))
            assert set((members["one"].seen + theirs).values()) == {1}
            assert members["one"].owned == one.partitions


def served(handler, others):
    return {partition for _, partition, _ in handler.seen | others}


async def test_a_group_that_decides_for_long_finds_its_member_there(settings, publisher):
    """While others come and go, a member waits for the decision, and joins when it is asked to."""
    database, other = Durable(), Durable()
    other.positions = database.positions

    async def leave_slowly():
        await asyncio.sleep(WAIT_SECONDS)

    async with member(settings, database, before_leaving=leave_slowly) as one:
        await until(lambda: len(one.partitions) == settings.partitions)
        second = settings.model_copy(update={"instance": "two"})
        async with member(second, other) as two:
            await until(lambda: one.settled and two.settled and len(two.partitions) == 2)
            await publish(publisher)
            await until(lambda: len(database.seen | other.seen) == len(HOSTS))


async def test_an_ingester_whose_publication_waits_goes_on(settings, publisher):
    done, there = Counter(), asyncio.Event()

    async def handle(records):
        await there.wait()
        done.update((record.partition, record.offset) for record in records)

    reader = SignalReader(settings, handle)
    await reader.start()
    stopping = asyncio.Event()
    running = asyncio.create_task(reader.run(stopping))
    try:
        await until(lambda: reader.settled)
        for number in range(50):
            await publisher.send(SIGNALS, None, b"%d" % number)
        await publisher.flush()
        await asyncio.sleep(WAIT_SECONDS)
        there.set()
        await until(lambda: sum(done.values()) >= 50)
        for number in range(50):
            await publisher.send(SIGNALS, None, b"%d" % number)
        await publisher.flush()
        await until(lambda: len(done) == 100)
        assert set(done.values()) == {1}
    finally:
        stopping.set()
        await asyncio.wait([running], timeout=10)
        running.cancel()
        await reader.stop()


class Announcer:
    """Announces nothing."""

    async def publish(self, announcements, _refused):
        return {place: len(part) for place, part in announcements.items() if part}


async def test_an_estimator_goes_on_when_its_database_is_back(settings, publisher, own_postgres):
    url = own_postgres.uri
    settings = settings.model_copy(update={"database_url": type(settings.database_url)(url)})
    await asyncio.to_thread(migrate, url, settings.partitions)
    stopping = asyncio.Event()
    handler = EstimatorHandler(settings, settings.clock(), Announcer(), stopping)
    await handler.open()
    made = BatchConsumer(settings, "estimators", ESTIMATED, handler)
    await made.start()
    running = asyncio.create_task(made.run(stopping))
    try:
        await until(lambda: made.settled and len(made.partitions) == settings.partitions)
        await asyncio.to_thread(own_postgres.stop)
        await upsert(publisher, range(100))
        await until(lambda: handler.trouble is not None)
        await asyncio.sleep(WAIT_SECONDS)
        assert "the database cannot be written" in handler.trouble
        await asyncio.to_thread(own_postgres.start)
        await until(lambda: handler.trouble is None)
        await upsert(publisher, range(100, 200))
        await until(lambda: pages(url) == 200)
        assert applied(url) == 200
    finally:
        stopping.set()
        await asyncio.wait([running], timeout=10)
        running.cancel()
        await made.stop()
        await handler.close()


async def upsert(publisher, numbers):
    for number in numbers:
        page = f"https://host-{number % 9}.example/{number}"
        message = PageUpdate("upsert", page, updated_at=1.7e9)
        await publisher.send_for_host(PAGE_UPDATES, identify(page).host, message)
    await publisher.flush()


def pages(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM pages").fetchone()[0]


def applied(url):
    """How many page-updates the positions say are done."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT sum(next_offset)::int FROM stream_positions WHERE topic = 'page-updates'"
        ).fetchone()[0]


async def test_a_worker_says_that_its_database_is_away(local_broker, own_postgres, tmp_path):
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"watch-{uuid.uuid4().hex[:8]}",
        database_url=own_postgres.uri,
    )
    await asyncio.to_thread(migrate, own_postgres.uri, settings.partitions)
    with worker("estimator", settings, tmp_path) as process:
        await process.ready()
        own_postgres.stop()
        await process.exposes(b"freshet_database_away 1.0")
        await asyncio.to_thread(own_postgres.start)
        await process.exposes(b"freshet_database_away 0.0")
        await process.ready()
