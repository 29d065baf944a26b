"""What a scheduler does while one of its shards is split: it stops, says so, and loads anew."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError

from services.scheduler.flow import splitting
from services.scheduler.flow.bounds import Bounds
from services.scheduler.flow.splitting import SplitWatch, begin_anew
from shared.contracts.layout import Layout
from shared.runtime.settings import Settings
from shared.store.connection import connect
from shared.store.growth import begin_growth, split_shard
from shared.store.positions import ESTIMATOR, advance_positions
from shared.store.splits import Split, SplitState, ask, hold, read_splits

BEFORE, AFTER = 2, 8
PARENT = 1


class Thread:
    async def run(self, function, *arguments):
        return function(*arguments)


class Consumer:
    def __init__(self):
        self.settled = self.is_sure = True
        self.reloaded = set()

    def reload(self, partitions):
        self.reloaded |= partitions


class Pauses:
    def __init__(self):
        self.is_sent = True
        self.picks_until = 0

    async def hold(self, shard):
        if not shard.is_held:
            shard.named_until = max(shard.named_until, self.picks_until)
        shard.is_held = True
        return self.is_sent

    async def go_on(self, shard):
        shard.is_held = False


class Scheduler:
    """One that has some shards, on a database of its own."""

    def __init__(self, url, shards, layout):
        self.url = url
        self.consumer, self.pauses = Consumer(), Pauses()
        self.layouts = []
        self.claim = begin_anew(url, set(shards)).claim
        self.shards = {
            number: SimpleNamespace(
                number=number, layout=layout, is_held=False, named_until=0, claim=self.claim
            )
            for number in shards
        }
        self._stopping = asyncio.Event()
        watch = SplitWatch(
            *(Settings(database_url=url), Thread(), lambda: self.shards),
            *(self.consumer, self.pauses, self.layouts.append),
        )
        self._running = asyncio.create_task(watch.run(self._stopping))

    async def stop(self):
        self._stopping.set()
        await self._running

    async def some_turns(self):
        await asyncio.sleep(20 * splitting.EVERY_SECONDS)


@pytest.fixture
def store(migrated_database):
    return migrated_database(BEFORE)


@pytest.fixture
def connection(store):
    with connect(store, "grow", autocommit=True) as connection:
        yield connection


@pytest.fixture
def ends(monkeypatch):
    """Topic → where the shard's partition ends; all begin at 0."""
    ends = dict.fromkeys(("page-updates", "host-limits"), 0)

    async def bounds_of(_settings, topics, partitions):
        places = [(topic.name, number) for topic in topics for number in partitions]
        return Bounds(dict.fromkeys(places, 0), {place: ends[place[0]] for place in places})

    monkeypatch.setattr(splitting, "bounds_of", bounds_of)
    return ends


@pytest.fixture
async def start(store, connection, ends, monkeypatch):
    monkeypatch.setattr(splitting, "EVERY_SECONDS", 0.02)
    started = []

    def begin(shards, layout):
        started.append(Scheduler(store, shards, layout))
        return started[-1]

    yield begin
    for scheduler in started:
        await scheduler.stop()


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


def state(connection):
    return read_splits(connection, [PARENT])[PARENT].state


async def test_a_shard_is_held_before_it_is_split_and_loaded_anew_after_it(
    start, store, connection
):
    layout = begin_growth(store, AFTER)
    scheduler = start([0, 1, 3, 4], Layout.of(BEFORE))
    scheduler.shards[3].layout = scheduler.shards[4].layout = layout
    await scheduler.some_turns()
    assert not any(shard.is_held for shard in scheduler.shards.values())
    assert scheduler.consumer.reloaded == set()
    assert ask(connection, PARENT, 30.0)
    await until(lambda: state(connection) is SplitState.HELD)
    assert [n for n, shard in scheduler.shards.items() if shard.is_held] == [PARENT]
    split_shard(connection, layout, PARENT, "grow")
    await until(lambda: scheduler.consumer.reloaded)
    assert scheduler.consumer.reloaded == {1, 3}


async def test_a_shard_is_not_called_held_before_the_broker_has_its_requests(
    start, store, connection
):
    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    scheduler.pauses.is_sent = False
    assert ask(connection, PARENT, 30.0)
    await until(lambda: scheduler.shards[PARENT].is_held)
    await scheduler.some_turns()
    assert state(connection) is SplitState.ASKED
    scheduler.pauses.is_sent = True
    await until(lambda: state(connection) is SplitState.HELD)


async def test_a_shard_is_held_once_estimators_know_the_pages_that_it_has_picked(
    start, store, connection
):
    """What crawls find of others would come where nobody knows them."""

    def apply(before, after):
        topic = {("page-updates", PARENT): after}
        with connection.transaction():
            advance_positions(connection, ESTIMATOR, {("page-updates", PARENT): before}, topic)

    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    shard = scheduler.shards[PARENT]
    shard.named_until = 7
    apply(0, 6)
    assert ask(connection, PARENT, 30.0)
    await scheduler.some_turns()
    assert not shard.is_held
    scheduler.pauses.picks_until = 9  # new pages come, and are picked, until it stops
    apply(6, 7)
    await until(lambda: shard.is_held)
    await scheduler.some_turns()
    assert state(connection) is SplitState.ASKED
    shard.named_until = 20  # more pages, of which none is picked
    apply(7, 9)
    await until(lambda: state(connection) is SplitState.HELD)


@pytest.mark.parametrize("topic", ["host-limits", "page-updates"])
async def test_a_shard_is_held_once_all_that_is_said_in_some_order_is_applied(
    start, store, connection, ends, topic
):
    """Of limits the last one holds: those that are passed on come behind what was said since."""

    def apply(before, after):
        with connection.transaction():
            place = (topic, PARENT)
            advance_positions(connection, ESTIMATOR, {place: before}, {place: after})

    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    shard = scheduler.shards[PARENT]
    ends[topic] = 3
    apply(0, 2)
    assert ask(connection, PARENT, 30.0)
    await scheduler.some_turns()
    assert not shard.is_held
    ends[topic] = 8  # more of it comes all the while
    apply(2, 3)
    await until(lambda: state(connection) is SplitState.HELD)


async def test_a_broker_that_does_not_say_where_topics_end_is_asked_again(
    start, store, connection, ends, monkeypatch
):
    bounds_of, asked = splitting.bounds_of, []

    async def away(*arguments):
        asked.append(arguments)
        if len(asked) == 1:
            raise KafkaConnectionError
        if len(asked) == 2:
            await asyncio.sleep(60)
        return await bounds_of(*arguments)

    monkeypatch.setattr(splitting, "bounds_of", away)
    monkeypatch.setattr(splitting, "ENDS_SECONDS", 0.1)
    begin_growth(store, AFTER)
    start([PARENT], Layout.of(BEFORE))
    assert ask(connection, PARENT, 30.0)
    await until(lambda: state(connection) is SplitState.HELD)
    assert len(asked) == 3


async def test_a_shard_is_picked_on_where_estimators_stop_just_when_it_has_stopped(
    start, store, connection, monkeypatch
):
    monkeypatch.setattr(splitting, "HELD_SECONDS", 0.1)
    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    shard = scheduler.shards[PARENT]
    scheduler.pauses.picks_until = 9
    assert ask(connection, PARENT, 30.0)
    await until(lambda: shard.is_held)
    await until(lambda: not shard.is_held)
    await scheduler.some_turns()
    assert not shard.is_held
    assert state(connection) is SplitState.ASKED
    with connection.transaction():
        topic = ("page-updates", PARENT)
        advance_positions(connection, ESTIMATOR, {topic: 0}, {topic: 9})
    await until(lambda: state(connection) is SplitState.HELD)
    await scheduler.some_turns()
    assert shard.is_held


async def test_pages_that_came_after_a_split_was_given_up_are_waited_for_as_well(
    start, store, connection
):
    """A growth that is called again, maybe days later, holds a shard no longer than the first."""
    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    shard = scheduler.shards[PARENT]
    shard.named_until = 3
    assert ask(connection, PARENT, 0.2)
    await scheduler.some_turns()
    await until(lambda: state(connection) is SplitState.WAITING)
    await scheduler.some_turns()
    shard.named_until = 7
    with connection.transaction():
        topic = ("page-updates", PARENT)
        advance_positions(connection, ESTIMATOR, {topic: 0}, {topic: 5})
    assert ask(connection, PARENT, 30.0)
    await scheduler.some_turns()
    assert not shard.is_held


async def test_a_shard_that_became_another_schedulers_just_now_is_not_called_held(
    start, store, connection, monkeypatch
):
    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    read = splitting.read_positions

    def lost(*arguments):
        if scheduler.shards[PARENT].is_held:
            scheduler.consumer.settled = False
        return read(*arguments)

    monkeypatch.setattr(splitting, "read_positions", lost)
    assert ask(connection, PARENT, 30.0)
    await until(lambda: not scheduler.consumer.settled)
    await scheduler.some_turns()
    assert state(connection) is SplitState.ASKED


@pytest.mark.parametrize("doubt", ["settled", "is_sure"])
async def test_a_scheduler_that_may_have_lost_a_shard_does_not_speak_for_it(
    start, store, connection, doubt
):
    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    setattr(scheduler.consumer, doubt, False)
    assert ask(connection, PARENT, 30.0)
    await until(lambda: scheduler.shards[PARENT].is_held)
    await scheduler.some_turns()
    assert state(connection) is SplitState.ASKED


async def test_a_shard_goes_on_when_whoever_wanted_to_split_it_is_gone(start, store, connection):
    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    assert ask(connection, PARENT, 0.5)
    await until(lambda: scheduler.shards[PARENT].is_held)
    await until(lambda: not scheduler.shards[PARENT].is_held)
    assert state(connection) is SplitState.WAITING
    assert ask(connection, PARENT, 30.0)
    await until(lambda: state(connection) is SplitState.HELD)


async def test_a_shard_that_was_split_stays_held_where_the_next_growth_has_begun(
    start, monkeypatch
):
    """It has yet to be loaded anew, and its number waits to be split once more."""
    waiting = Split(SplitState.WAITING, False, None, None)
    grown = Layout.of(AFTER)
    monkeypatch.setattr(SplitWatch, "_read", lambda *_: (grown, {PARENT: waiting}))
    scheduler = start([PARENT], Layout.of(BEFORE))
    scheduler.shards[PARENT].is_held = True
    await until(lambda: scheduler.consumer.reloaded)
    await scheduler.some_turns()
    assert scheduler.shards[PARENT].is_held
    scheduler.shards[PARENT].layout = grown
    await until(lambda: not scheduler.shards[PARENT].is_held)


async def test_what_a_scheduler_before_has_said_of_a_shard_does_not_count(store, connection):
    layout = begin_growth(store, AFTER)
    assert ask(connection, PARENT, 30.0)
    assert hold(connection, PARENT)
    assert begin_anew(store, {0, PARENT}).layout == layout
    assert state(connection) is SplitState.ASKED


async def test_a_hold_that_comes_after_another_has_taken_the_shard_over_holds_nothing(
    start, store, connection, monkeypatch
):
    """It was under way, and the other picks pages meanwhile."""
    begin_growth(store, AFTER)
    scheduler = start([PARENT], Layout.of(BEFORE))
    late, landed = splitting.hold, []

    def hold_late(*arguments, **named):
        begin_anew(store, {PARENT})
        landed.append(late(*arguments, **named))
        return landed[-1]

    monkeypatch.setattr(splitting, "hold", hold_late)
    assert ask(connection, PARENT, 30.0)
    await until(lambda: landed)
    await scheduler.some_turns()
    assert set(landed) == {False}
    assert state(connection) is SplitState.ASKED


async def test_who_is_sure_of_a_shard_that_another_has_taken_over_loads_it_anew(
    start, store, connection
):
    """A database that forgot who took it over last must not keep it from being split for ever."""
    begin_growth(store, AFTER)
    scheduler = start([0, PARENT], Layout.of(BEFORE))
    begin_anew(store, {PARENT})
    scheduler.consumer.is_sure = False
    assert ask(connection, PARENT, 30.0)
    await scheduler.some_turns()
    assert scheduler.consumer.reloaded == set()
    scheduler.consumer.is_sure = True
    await until(lambda: scheduler.consumer.reloaded)
    assert scheduler.consumer.reloaded == {PARENT}
    assert state(connection) is SplitState.ASKED
