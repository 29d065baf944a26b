"""Two estimators that both believe to own the shards: whoever is stopped where, nothing is lost.

A group hands a shard to another member while the first one has a batch at hand: it is slow, its
machine is asleep, it was cut off. Both have all of the shard in memory, and both write whole rows.
"""

import asyncio
import threading
from collections import defaultdict
from types import SimpleNamespace

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, assert_schedulers_know, crawl, signal, upsert

from services.estimator import persistence, taking
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES
from shared.store import writer
from shared.store.snapshot import load_for_learning

ALL = range(SHARDS)
TOPICS = (PAGE_UPDATES.name, PAGE_SIGNALS.name, CRAWL_OUTCOMES.name)


class Member:
    """What a consumer does for a handler: it reads from the positions that the handler loaded."""

    def __init__(self, handler, log):
        self.handler = handler
        self._log = log
        self._next = defaultdict(int)

    async def join(self):
        self._next.update(await self.handler.assigned(set(ALL)))

    async def read(self, *topics):
        """Handle all that there is of these topics."""
        batch = {}
        for topic in topics or TOPICS:
            for shard in ALL:
                records = [
                    r for r in self._log[topic][shard] if r.offset >= self._next[topic, shard]
                ]
                if records:
                    batch.setdefault(topic, {})[shard] = records
        if batch:
            await self.handler.handle(batch)
        for topic, parts in batch.items():
            for shard, records in parts.items():
                self._next[topic, shard] = records[-1].offset + 1


class Stop:
    """A place at which an estimator stands still until it may go on; once."""

    def __init__(self):
        self._reached = threading.Event()
        self._go = threading.Event()

    def stand_still(self):
        self._reached.set()
        assert self._go.wait(60)

    async def reached(self):
        assert await asyncio.to_thread(self._reached.wait, 60)

    def go_on(self):
        self._go.set()

    def around(self, function, *, after=False):
        """The function, with the stop before or after it."""

        def stopping(*arguments, **options):
            if not after:
                self.stand_still()
            result = function(*arguments, **options)
            if after:
                self.stand_still()
            return result

        return stopping

    def around_async(self, function, *, after=False):
        async def stopping(*arguments, **options):
            if not after:
                await asyncio.to_thread(self.stand_still)
            result = await function(*arguments, **options)
            if after:
                await asyncio.to_thread(self.stand_still)
            return result

        return stopping


@pytest.fixture
def log(kafka):
    """Pages, a signal of each, and a crawl of each, as they stand on the topics."""
    log = kafka.batch(*map(upsert, URLS))
    log |= kafka.batch(*(signal(url, NOW + 2 * DAY) for url in URLS))
    log |= kafka.batch(
        *(crawl(url, NOW + DAY) for url in URLS),
        *(crawl(url, NOW + 4 * DAY, "changed") for url in URLS),
    )
    return defaultdict(lambda: defaultdict(list), {t: defaultdict(list, p) for t, p in log.items()})


def stopped_at(place, handler, monkeypatch):
    """Let a handler stop at a place within a batch."""
    stop = Stop()
    store = handler._store
    if place == "before it commits":
        monkeypatch.setattr(store, "commit", stop.around(store.commit))
    elif place == "in its transaction":
        write = persistence.write_rows
        monkeypatch.setattr(
            persistence,
            "write_rows",
            lambda *given: (stop.around(write) if given[0] is store._connection else write)(*given),
        )
    elif place == "once it has committed":
        monkeypatch.setattr(store, "commit", stop.around(store.commit, after=True))
    else:
        publish = handler._outbox._announcer.publish
        is_after = place == "once it has announced"
        stopping = SimpleNamespace(publish=stop.around_async(publish, after=is_after))
        handler._outbox._announcer = stopping
    return stop


PLACES = (
    "before it commits",
    "in its transaction",
    "once it has committed",
    "before it announces",
    "once it has announced",
)


async def done_or_waiting(task, settings):
    """Until a task is done, or waits in the database for somebody's lock."""
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        while not task.done():
            waiting = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND application_name = 'freshet-estimator' AND datname = current_database()"
            ).fetchone()
            if waiting and waiting[0]:
                return
            await asyncio.sleep(0.01)


def counted(settings):
    """(Crawls, changes, signals) of all pages together, and the crawl records in the table."""
    url = settings.database_url.get_secret_value()
    shards = [load_for_learning(url, shard) for shard in ALL]
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT count(*) FROM observations").fetchone()
    columns = [(s.learning.crawls, s.learning.changes, s.pages.signal_count) for s in shards]
    totals = [sum(int(column.sum()) for column in of_all) for of_all in zip(*columns, strict=True)]
    return (*totals, rows[0])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("new_owner", ["loads", "loads and commits"])
async def test_an_owner_that_was_stopped_in_a_batch_undoes_nothing_of_the_next_ones(
    settings, start, kafka, log, monkeypatch, place, new_owner
):
    old, new = Member(await start(kafka, []), log), Member(await start(kafka, []), log)
    await old.join()
    await old.read(PAGE_UPDATES.name)
    stop = stopped_at(place, old.handler, monkeypatch)
    late = asyncio.create_task(old.read(CRAWL_OUTCOMES.name))
    await stop.reached()

    async def take_over():
        await new.join()
        if new_owner == "loads and commits":
            await new.read(PAGE_SIGNALS.name)

    taking = asyncio.create_task(take_over())
    await done_or_waiting(taking, settings)
    stop.go_on()
    await asyncio.gather(late, taking)
    await new.read(PAGE_SIGNALS.name)
    await new.read()
    count = len(URLS)
    assert counted(settings) == (2 * count, count, count, count)
    assert kafka.refused == []
    assert_schedulers_know(settings, kafka)


async def test_nobody_waits_for_one_that_is_frozen_while_it_sends_observations(
    settings, start, kafka, log, monkeypatch
):
    """The server never gives up a client in the middle of a COPY."""
    old, new = Member(await start(kafka, []), log), Member(await start(kafka, []), log)
    await old.join()
    await old.read(PAGE_UPDATES.name, PAGE_SIGNALS.name)
    stop = Stop()
    append, is_old = writer.append_observations, iter([True])

    def append_one(*given):
        (stop.around(append, after=True) if next(is_old, False) else append)(*given)

    monkeypatch.setattr(writer, "append_observations", append_one)
    late = asyncio.create_task(old.read(CRAWL_OUTCOMES.name))
    await stop.reached()
    await new.join()
    await new.read()
    assert new.handler.trouble is None
    count = len(URLS)
    assert counted(settings) == (2 * count, count, count, count)
    stop.go_on()
    await late
    assert counted(settings) == (2 * count, count, count, count)


@pytest.mark.parametrize(
    "place", ["before it owns them", "before it reads them", "once it has read them"]
)
@pytest.mark.parametrize("goes_on", ["old", "new"])
async def test_an_owner_that_was_stopped_while_it_loads_undoes_nothing_of_the_next_ones(
    settings, start, kafka, log, monkeypatch, place, goes_on
):
    first = Member(await start(kafka, []), log)
    await first.join()
    await first.read(PAGE_UPDATES.name)
    old, new = Member(await start(kafka, []), log), Member(await start(kafka, []), log)
    stop = Stop()
    if place == "before it owns them":
        monkeypatch.setattr(old.handler._store, "own", stop.around(old.handler._store.own))
    else:
        load, is_old = taking.load_for_learning, iter([True])
        stopping = stop.around(load, after=place == "once it has read them")

        def load_one(*given):
            return stopping(*given) if next(is_old, False) else load(*given)

        monkeypatch.setattr(taking, "load_for_learning", load_one)
    late = asyncio.create_task(old.join())
    await stop.reached()
    await new.join()
    await new.read(CRAWL_OUTCOMES.name)
    stop.go_on()
    await late
    members = [old, new] if goes_on == "old" else [new, old]
    for member in members:
        await member.read(PAGE_SIGNALS.name)
    for member in reversed(members):
        await member.read()
    count = len(URLS)
    assert counted(settings) == (2 * count, count, count, count)
    assert kafka.refused == []
    assert_schedulers_know(settings, kafka)
