"""Partitions follow the group, positions follow the state, and nothing is handled twice."""

import asyncio
import contextlib
import math
from collections import Counter

import pytest
from aiokafka.errors import KafkaError
from group_member import PARTITIONS, Recorder, member, settings_for, until
from structlog.testing import capture_logs

from shared.contracts.messages import PageSignal
from shared.contracts.topics import CRAWL_OUTCOMES, MULTIPLIERS, PAGE_SIGNALS, TOPICS
from shared.runtime import leftovers
from shared.runtime.consumer import BatchConsumer
from shared.runtime.follower import Follower
from shared.runtime.kafka import appended_at, ensure_topics
from shared.runtime.partition_counts import TopicMismatch
from shared.runtime.wall_time import steady

HOSTS = [f"host-{number}.example" for number in range(40)]


async def publish_signals(publisher):
    for number, host in enumerate(HOSTS):
        signal = PageSignal(number, f"http://{host}/", host, "test", 1.0)
        await publisher.send_for_host(PAGE_SIGNALS, host, signal)
    await publisher.flush()


async def test_a_restarted_member_goes_on_at_its_durable_positions(broker, prefix, publisher):
    positions = {}
    await publish_signals(publisher)
    first = Recorder(positions)
    async with member(settings_for(broker, prefix), first):
        await until(lambda: len(first.seen) == len(HOSTS))
    await publish_signals(publisher)
    second = Recorder(positions)
    async with member(settings_for(broker, prefix), second):
        await until(lambda: len(second.seen) >= len(HOSTS))
    assert len(second.seen) == len(HOSTS)
    assert not set(first.seen) & set(second.seen)


async def test_a_second_member_takes_half_and_the_rest_stays_loaded(broker, prefix, publisher):
    positions = {}
    one, two = Recorder(positions), Recorder(positions)
    async with member(settings_for(broker, prefix), one) as first:
        await until(lambda: first.settled and len(first.partitions) == PARTITIONS)
        async with member(settings_for(broker, prefix, "two"), two) as second:
            await until(lambda: len(first.partitions) == len(second.partitions) == 2)
            await publish_signals(publisher)
            await until(lambda: len(one.seen) + len(two.seen) >= len(HOSTS))
            assert not first.partitions & second.partitions
    assert len(one.seen) + len(two.seen) == len(HOSTS)
    assert one.loads[0] == set(range(PARTITIONS))
    assert all(len(load) == 2 for load in two.loads)


class SlowRecorder(Recorder):
    """Once held, what it loads takes as long as is wanted."""

    def __init__(self, positions):
        super().__init__(positions)
        self.begun = self.may_end = None

    def hold(self):
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def assigned(self, partitions):
        if self.begun is not None:
            self.begun.set()
            await self.may_end.wait()
        return await super().assigned(partitions)


async def test_partitions_that_stay_are_read_while_others_are_loaded(broker, prefix, publisher):
    positions = {}
    one, two = SlowRecorder(positions), Recorder(positions)
    async with member(settings_for(broker, prefix), one, loads_beside=True) as first:
        await until(lambda: first.settled and len(first.partitions) == PARTITIONS)
        async with member(settings_for(broker, prefix, "two"), two) as second:
            await until(lambda: len(first.partitions) == len(second.partitions) == 2)
            await until(lambda: first.settled and second.settled)
            kept = set(first.partitions)
            one.hold()
        await until(one.begun.is_set)
        await publish_signals(publisher)
        await until(lambda: first.settled and {p for _, p, _ in one.seen} == kept)
        assert first.is_loading
        assert first.partitions == kept
        one.may_end.set()
        await until(lambda: len(one.seen) >= len(HOSTS))
        assert not first.is_loading
        assert len(first.partitions) == PARTITIONS
    assert len(set(one.seen)) == len(one.seen) == len(HOSTS)


async def test_what_was_loaded_while_the_group_decided_anew_is_said_too(broker, prefix):
    one = SlowRecorder({})
    one.hold()

    async def decides_anew():
        one.may_end.set()

    settings = settings_for(broker, prefix)
    with capture_logs() as lines:
        async with member(settings, one, before_leaving=decides_anew) as first:
            await until(one.begun.is_set)
            async with member(settings_for(broker, prefix, "two"), Recorder({})) as second:
                await until(lambda: len(first.partitions) == len(second.partitions) == 2)
                await until(lambda: first.settled and second.settled)
                said: Counter[int] = Counter()
                for line in [line for line in lines if line["event"] == "partitions assigned"]:
                    said.update(line["new"])
                    said.subtract(line["lost"])
                assert said == dict.fromkeys(range(PARTITIONS), 1)


async def test_what_came_while_the_group_decided_is_told_before_it_is_read(
    broker, prefix, publisher
):
    positions, told = {}, []
    one, two = Recorder(positions), Recorder(positions)

    async def meanwhile():
        if not told[-1]:
            await publish_signals(publisher)

    async def unread(ends):
        assert not one.seen
        told.append(dict(ends))

    settings = settings_for(broker, prefix)
    async with member(settings, one, before_leaving=meanwhile, unread=unread) as first:
        await until(lambda: first.settled and len(first.partitions) == PARTITIONS)
        assert told[-1] == {}
        async with member(settings_for(broker, prefix, "two"), two) as second:
            await until(lambda: len(first.partitions) == len(second.partitions) == 2)
            await until(lambda: len(one.seen) + len(two.seen) >= len(HOSTS))
    ends = {}
    for topic, partition, offset in one.seen:
        ends[topic, partition] = max(ends.get((topic, partition), 0), offset + 1)
    assert told[-1] == ends != {}


async def test_what_fails_beside_the_reading_ends_it(broker, prefix):
    one, two = SlowRecorder({}), Recorder({})
    topics = (PAGE_SIGNALS, CRAWL_OUTCOMES)
    consumer = BatchConsumer(
        settings_for(broker, prefix), "readers", topics, one, loads_beside=True
    )
    await consumer.start()
    running = asyncio.create_task(consumer.run(asyncio.Event()))
    try:
        await until(lambda: consumer.settled)
        async with member(settings_for(broker, prefix, "two"), two) as second:
            await until(lambda: len(consumer.partitions) == len(second.partitions) == 2)
            await until(lambda: consumer.settled)

            async def fail(partitions):
                raise RuntimeError(f"{len(partitions)} cannot be loaded")

            one.assigned = fail
        with pytest.raises(RuntimeError, match="2 cannot be loaded"):
            await asyncio.wait_for(running, 30.0)
    finally:
        running.cancel()
        await consumer.stop()


async def test_a_member_that_was_not_heard_is_not_sure_and_loads_again(broker, prefix, monkeypatch):
    one, two = Recorder({}), Recorder({})
    async with member(settings_for(broker, prefix), one) as first:
        await until(lambda: first.settled and len(first.partitions) == PARTITIONS)
        assert first.is_sure
        # As a pause or a network does it: the broker hears nothing, and the member knows nothing.
        heard = asyncio.Event()
        coordinator = first._consumer._coordinator
        send = coordinator._send_req

        async def send_when_heard(request):
            await heard.wait()
            return await send(request)

        monkeypatch.setattr(coordinator, "_send_req", send_when_heard)
        async with member(settings_for(broker, prefix, "two"), two) as second:
            await until(lambda: second.settled and len(second.partitions) == PARTITIONS)
            assert not first.is_sure
            loads = len(one.loads)
            heard.set()
            await until(lambda: len(one.loads) > loads and len(first.partitions) == 2)
            await until(lambda: first.is_sure and second.is_sure)
            assert one.loads[-1] == set(first.partitions)


async def test_a_member_is_sure_again_once_it_was_told_what_came_meanwhile(
    broker, prefix, publisher, monkeypatch
):
    """What was written just before a broker went away, its first readers have not seen."""
    recorder, told = Recorder({}), []

    async def unread(ends):
        told.append((first.is_sure, ends))

    async with member(settings_for(broker, prefix), recorder, unread=unread) as first:
        await until(lambda: first.settled and first.is_sure)
        told.clear()
        with monkeypatch.context() as away:
            away.setattr(first._membership, "_sure_seconds", 0.0)
            away.setattr(first._telling, "unread", never)
            await until(lambda: first._membership.was_unsure)
            assert not first.is_sure
        await until(lambda: first.is_sure)
        assert told == [(False, {})]


async def never():
    return False


async def test_a_topic_with_other_partitions_is_a_clear_error(broker, prefix):
    settings = settings_for(broker, prefix)
    with pytest.raises(TopicMismatch, match=f"{PARTITIONS} partitions .* FRESHET_PARTITIONS"):
        await ensure_topics(settings.model_copy(update={"partitions": PARTITIONS + 1}))


async def test_topics_that_exist_are_left_as_they_are(broker, prefix):
    await ensure_topics(settings_for(broker, prefix), TOPICS)


async def test_a_follower_receives_what_stood_and_what_comes(broker, prefix, publisher):
    await (await publisher.send(MULTIPLIERS, b"global", b"old", partition=0))
    received = []
    follower = Follower(
        settings_for(broker, prefix), MULTIPLIERS, lambda record: received.append(record.value)
    )
    await follower.start()
    assert received == [b"old"]
    stopping = asyncio.Event()
    running = asyncio.create_task(follower.run(stopping))
    await publisher.send(MULTIPLIERS, b"global", b"new", partition=0)
    await until(lambda: received == [b"old", b"new"])
    stopping.set()
    await running
    await follower.stop()


async def test_a_follower_knows_up_to_when_it_has_everything(broker, prefix, publisher):
    received = []
    follower = Follower(
        settings_for(broker, prefix), MULTIPLIERS, lambda record: received.append(record.value)
    )
    await follower.start()
    assert follower.known_at == -math.inf
    stopping = asyncio.Event()
    asking = asyncio.create_task(follower.keep_up(stopping))
    running = asyncio.create_task(follower.run(stopping))
    for number in range(5):
        value = b"%d" % number
        sent = await publisher.send(MULTIPLIERS, b"global", value, partition=0)
        assert appended_at(await sent) is not None
        since = steady()
        await until(lambda since=since: follower.known_at > since)
        assert received[-1] == value
    running.cancel()  # what comes now is not received, and so not known
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await (await publisher.send(MULTIPLIERS, b"global", b"last", partition=0))
    since = steady()
    await asyncio.sleep(0.5)
    assert follower.known_at < since
    stopping.set()
    await asking
    await follower.stop()


async def test_a_refusal_of_the_broker_is_not_waited_out(broker):
    # Settings are looked through, so that a worker comes to ask for no such names.
    refused = settings_for(broker, "").model_copy(update={"topic_prefix": "no [brackets] "})
    async with asyncio.timeout(10):
        with pytest.raises(KafkaError):
            await ensure_topics(refused)


class Reluctant(Recorder):
    """A handler that cannot do a partition the first times."""

    def __init__(self, positions, partition, times):
        super().__init__(positions)
        self._partition = partition
        self._times = times

    async def handle(self, batch):
        left = set()
        for topic, partitions in batch.items():
            if self._partition in partitions and self._times > 0:
                self._times -= 1
                left = {self._partition}
            done = {p: records for p, records in partitions.items() if p not in left}
            await super().handle({topic: done})
        return left


async def test_what_is_left_is_handed_over_again_while_others_go_on(
    broker, prefix, publisher, monkeypatch
):
    monkeypatch.setattr(leftovers, "PAUSE_SECONDS", 0.5)
    await publish_signals(publisher)
    handler = Reluctant({}, 1, times=3)
    async with member(settings_for(broker, prefix), handler):
        here = {partition for _, partition, _ in handler.seen}
        await until(lambda: {p for _, p, _ in handler.seen} >= {0, 2, 3})
        assert here <= {0, 2, 3}
        await publish_signals(publisher)
        await until(lambda: len(handler.seen) == 2 * len(HOSTS))
    offsets = [offset for _, partition, offset in handler.seen if partition == 1]
    assert offsets == list(range(len(offsets)))
    assert len(set(handler.seen)) == len(handler.seen)
