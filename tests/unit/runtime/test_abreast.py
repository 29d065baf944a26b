"""Records wait for those that were written before them, and for nothing that does not come."""

import time
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError

from shared.runtime import abreast as module
from shared.runtime.abreast import LATE_SECONDS, PATIENCE_SECONDS, SLACK_SECONDS, Abreast

CRAWLS, SIGNALS = TopicPartition("crawls", 3), TopicPartition("signals", 3)
HOUR = 3_600.0


class Consumer:
    """Two topics of which everything up to `read` was fetched, and `ends` are known."""

    def __init__(self):
        self.read, self.ends, self.paused = {CRAWLS: 0, SIGNALS: 0}, {CRAWLS: 0, SIGNALS: 0}, set()

    async def position(self, tp):
        return self.read[tp]

    def highwater(self, tp):
        return self.ends[tp]

    def last_stable_offset(self, tp):
        return self.ends[tp]

    def seek(self, tp, offset):
        self.read[tp] = offset

    def pause(self, tp):
        self.paused.add(tp)

    def resume(self, tp):
        self.paused.discard(tp)

    def fetch(self, tp, *times):
        """Records of these times come next."""
        first = self.read[tp]
        self.read[tp] += len(times)
        self.ends[tp] = max(self.ends[tp], self.read[tp])
        return [
            SimpleNamespace(offset=first + n, timestamp=round(at * 1e3))
            for n, at in enumerate(times)
        ]


@pytest.fixture
def consumer():
    return Consumer()


@pytest.fixture
def abreast():
    return Abreast({"crawls", "signals"})


def offsets(fetched):
    return {tp: [record.offset for record in records] for tp, records in fetched.items()}


async def hold(abreast, consumer, fetched):
    await abreast.hold_back(consumer, fetched)
    return offsets(fetched)


async def test_who_is_ahead_waits_and_goes_on(abreast, consumer):
    begin = time.time() - HOUR
    consumer.ends[SIGNALS] = 4
    crawls = consumer.fetch(CRAWLS, *(begin + 10 * n for n in range(10)))
    signals = consumer.fetch(SIGNALS, begin + 25, begin + 45)
    found = await hold(abreast, consumer, {CRAWLS: crawls, SIGNALS: signals})
    assert found == {CRAWLS: [0, 1, 2, 3, 4], SIGNALS: [0, 1]}
    assert consumer.paused == {CRAWLS}
    assert consumer.read[CRAWLS] == 5
    # The next signals are later than what waits: now they do.
    signals = consumer.fetch(SIGNALS, begin + 47, begin + 75)
    assert await hold(abreast, consumer, {SIGNALS: signals}) == {SIGNALS: [2]}
    assert consumer.paused == {SIGNALS}
    crawls = consumer.fetch(CRAWLS, *(begin + 10 * n for n in range(5, 10)))
    assert await hold(abreast, consumer, {CRAWLS: crawls}) == {CRAWLS: [5, 6, 7]}
    signals = consumer.fetch(SIGNALS, begin + 75)
    assert await hold(abreast, consumer, {SIGNALS: signals}) == {SIGNALS: [3]}
    crawls = consumer.fetch(CRAWLS, begin + 80, begin + 90)
    assert await hold(abreast, consumer, {CRAWLS: crawls}) == {CRAWLS: [8, 9]}
    assert consumer.paused == set()
    assert abreast._parts == {}


async def test_records_that_come_one_by_one_do_not_take_turns_at_each(abreast, consumer):
    begin = time.time() - HOUR
    consumer.ends |= {CRAWLS: 100, SIGNALS: 100}
    for second in range(50):
        crawls = consumer.fetch(CRAWLS, begin + second)
        signals = consumer.fetch(SIGNALS, begin + second + SLACK_SECONDS / 2)
        assert len(await hold(abreast, consumer, {CRAWLS: crawls, SIGNALS: signals})) == 2


async def test_a_topic_that_is_read_to_its_end_holds_nobody_back(abreast, consumer):
    begin = time.time() - HOUR
    consumer.ends[CRAWLS] = 100
    crawls = consumer.fetch(CRAWLS, begin, begin + 1)
    assert await hold(abreast, consumer, {CRAWLS: crawls}) == {CRAWLS: [0, 1]}


async def test_where_no_record_is_late_the_broker_is_not_asked(abreast, consumer):
    consumer.ends[SIGNALS] = 5
    consumer.position = None
    crawls = consumer.fetch(CRAWLS, time.time() - LATE_SECONDS / 2)
    assert await hold(abreast, consumer, {CRAWLS: crawls}) == {CRAWLS: [0]}


async def test_nothing_waits_for_a_topic_whose_clock_is_behind(abreast, consumer, monkeypatch):
    """Its records are always an hour old, and there are always more."""
    now = time.time()
    clock = SimpleNamespace(at=0.0)
    monkeypatch.setattr(
        module, "time", SimpleNamespace(time=lambda: now + clock.at, monotonic=lambda: clock.at)
    )
    handled, waited = [], 0
    signals = []
    while clock.at < 5 * PATIENCE_SECONDS:
        crawls = consumer.fetch(CRAWLS, now - HOUR + clock.at)
        consumer.ends[CRAWLS] += 1
        fetched = {CRAWLS: crawls}
        if SIGNALS not in consumer.paused:
            signals = consumer.fetch(SIGNALS, now + clock.at)
            fetched[SIGNALS] = signals
        found = await hold(abreast, consumer, fetched)
        assert found[CRAWLS] == [crawls[0].offset]
        handled += found.get(SIGNALS, [])
        waited = max(waited, clock.at) if not handled else waited
        clock.at += 0.5
    assert waited <= 2 * PATIENCE_SECONDS
    assert len(handled) >= 2 * PATIENCE_SECONDS / 0.5


async def test_a_topic_that_is_not_fetched_at_all_is_not_waited_for_for_ever(
    abreast, consumer, monkeypatch
):
    now = time.time()
    clock = SimpleNamespace(at=0.0)
    monkeypatch.setattr(
        module, "time", SimpleNamespace(time=lambda: now, monotonic=lambda: clock.at)
    )
    consumer.ends[SIGNALS] = 5
    crawls = consumer.fetch(CRAWLS, now - HOUR)
    assert await hold(abreast, consumer, {CRAWLS: crawls}) == {}
    clock.at = PATIENCE_SECONDS + 1
    await hold(abreast, consumer, {})
    assert consumer.paused == set()
    assert await hold(abreast, consumer, {CRAWLS: consumer.fetch(CRAWLS, now - HOUR)}) != {}


async def test_who_stood_still_for_a_while_reads_abreast_again(abreast, consumer, monkeypatch):
    now = time.time()
    clock = SimpleNamespace(at=0.0)
    monkeypatch.setattr(
        module, "time", SimpleNamespace(time=lambda: now, monotonic=lambda: clock.at)
    )
    consumer.ends |= {CRAWLS: 1000, SIGNALS: 1000}
    begin, found = now - HOUR, {}

    async def turn(second):
        consumer.resume(CRAWLS)
        crawls = consumer.fetch(CRAWLS, begin + second, begin + second + 60)
        signals = consumer.fetch(SIGNALS, begin + second)
        found.update(await hold(abreast, consumer, {CRAWLS: crawls, SIGNALS: signals}))
        return len(found[CRAWLS])

    assert await turn(0) == 1
    clock.at += PATIENCE_SECONDS  # A batch took so long: nobody can say that it catches up.
    assert await turn(0.1) == 1
    clock.at += PATIENCE_SECONDS
    assert await turn(0.2) == 2
    clock.at += PATIENCE_SECONDS
    assert await turn(5 * PATIENCE_SECONDS) == 1


async def test_what_has_gone_to_another_member_is_nobodys(abreast, consumer):
    async def gone(_tp):
        raise IllegalStateError("not assigned")

    consumer.position = gone
    crawls = consumer.fetch(CRAWLS, time.time() - HOUR)
    await hold(abreast, consumer, {CRAWLS: crawls})
    abreast.forget({3})
    assert abreast._parts == {}


async def test_a_topic_of_which_the_broker_has_said_nothing_yet_is_waited_for(abreast, consumer):
    consumer.ends[SIGNALS] = None
    crawls = consumer.fetch(CRAWLS, time.time() - HOUR)
    assert await hold(abreast, consumer, {CRAWLS: crawls}) == {}
