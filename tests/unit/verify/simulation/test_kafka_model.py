"""The model of Kafka does to its clients what Kafka does."""

import asyncio
from random import Random

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from services.verify.simulation.kafka.broker import Broker, Given, Partition
from services.verify.simulation.kafka.consumer import Consumer
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.kafka.producer import Producer
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import Scale, Weather, draw_plan
from services.verify.simulation.process import OUTSIDE, Process
from shared.runtime.aiokafka_patches import hold_back

CALM = Weather(0.0, 0.0, 0.0, 0.0, 0.0)
TOPIC = "crawl-outcomes"


class World:
    """A broker with two partitions, and processes that use it."""

    def __init__(self):
        self.loop = VirtualLoop(Random(1))
        self.broker = Broker(self.loop, 2, frozenset())
        self.network = Network(self.loop, Random(2), 0.0)
        plan = draw_plan(1, Scale(kinds=()))
        self.plan = type(plan)(plan.seed, plan.scale, (), CALM)

    def run(self, main):
        task = self.loop.create_task(main, context=OUTSIDE.context())
        try:
            return self.loop.run_until_complete(task)
        finally:
            self.loop.end()

    def spawn(self, process, coroutine):
        return self.loop.create_task(coroutine, context=process.context())

    def consumer(self, instance):
        options = {
            "group_id": "group",
            "group_instance_id": instance,
            "session_timeout_ms": 3000,
            "heartbeat_interval_ms": 300,
            "auto_offset_reset": "none",
        }
        return Consumer(self.loop, self.broker, self.network, Random(3), options, self.plan)

    def producer(self, *, enable_idempotence=True):
        return Producer(self.loop, self.broker, self.network, enable_idempotence=enable_idempotence)

    def alone(self, auto_offset_reset):
        """A consumer without a group."""
        options = {"auto_offset_reset": auto_offset_reset, "isolation_level": "read_committed"}
        return Consumer(self.loop, self.broker, self.network, Random(3), options, self.plan)

    def records(self):
        return [record.value for record in self.broker.records(TOPIC)]


class Member:
    """A process that reads for a group, and notes what it is given."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.process = Process(name)
        self.assigned = None
        self.failed = None
        self.polls = True

    async def on_partitions_revoked(self, revoked):
        self.assigned = None

    async def on_partitions_assigned(self, assigned):
        self.assigned = sorted({tp.partition for tp in assigned})

    def start(self):
        self.world.spawn(self.process, self._read())
        return self

    async def _read(self):
        consumer = self.world.consumer(self.name)
        await consumer.start()
        consumer.subscribe([TOPIC], listener=self)
        try:
            while True:
                if self.polls:
                    await consumer.getmany(timeout_ms=100)
                else:
                    await asyncio.sleep(0.1)
        except KafkaError as error:
            self.failed = error


def test_a_record_whose_answer_is_lost_is_sent_again_and_stored_once():
    world = World()

    async def main():
        sender = Process("sender")

        async def send():
            producer = world.producer()
            await producer.start()
            return await (await producer.send(TOPIC, b"value", key=b"k", partition=0))

        world.network.cut("sender", mute=False, deaf=False)
        sending = world.spawn(sender, send())
        await asyncio.sleep(0.003)
        world.network.cut("sender", mute=False, deaf=True)
        await asyncio.sleep(2.0)
        stored_before_the_answer = world.records()
        world.network.heal("sender")
        answer = await sending
        return stored_before_the_answer, answer.offset

    # Connecting may be what hears nothing first: then the record comes once it is mended.
    before, offset = world.run(main())
    assert before in ([b"value"], [])
    assert (world.records(), offset) == ([b"value"], 0)


def test_a_batch_that_comes_twice_stands_once_where_it_stood():
    world = World()
    batch = [Given(b"k", b"one", 0), Given(b"k", b"two", 0)]
    first = world.broker.append(TOPIC, 0, batch, 7)
    again = world.broker.append(TOPIC, 0, batch, 7)
    assert (first.offset, again.offset) == (0, 0)
    assert world.records() == [b"one", b"two"]
    world.loop.close()


def test_what_is_held_back_waits_until_it_may_go():
    world = World()

    async def main():
        allowed = []
        producer = world.producer()
        await producer.start()
        hold_back(producer, lambda: bool(allowed))
        answer = await producer.send(TOPIC, b"late", key=b"k", partition=0)
        await asyncio.sleep(5.0)
        held = world.records()
        allowed.append(1)
        await answer
        return held

    assert world.run(main()) == []
    assert world.records() == [b"late"]


def test_a_request_of_a_process_that_is_cut_off_comes_late_when_the_way_is_free():
    world = World()

    async def main():
        world.network.cut("p", mute=True, deaf=True)
        arrived = []

        async def ask():
            return await world.network.ask(lambda: arrived.append(world.loop.now), seconds=60.0)

        asking = world.spawn(Process("p"), ask())
        await asyncio.sleep(10.0)
        before = list(arrived)
        world.network.heal("p")
        await asking
        return before, arrived[0]

    before, at = world.run(main())
    assert before == []
    assert at >= 10.0


def test_two_members_share_and_one_that_is_not_heard_loses_its_part():
    world = World()

    async def main():
        one, two = Member(world, "one").start(), Member(world, "two").start()
        await asyncio.sleep(2.0)
        shared = one.assigned, two.assigned
        world.loop.kill(two.process)
        await asyncio.sleep(2.0)
        within_the_session = one.assigned
        await asyncio.sleep(3.0)
        return shared, within_the_session, one.assigned

    assert world.run(main()) == (([0], [1]), [0], [0, 1])


def test_a_static_member_that_is_back_in_time_takes_its_own_place():
    world = World()

    async def main():
        one, two = Member(world, "one").start(), Member(world, "two").start()
        await asyncio.sleep(2.0)
        generation = world.broker.groups.all()[0].generation
        world.loop.kill(two.process)
        await asyncio.sleep(1.0)
        back = Member(world, "two").start()
        await asyncio.sleep(6.0)
        return one.assigned, back.assigned, world.broker.groups.all()[0].generation - generation

    assert world.run(main()) == ([0], [1], 0)


def test_a_member_whose_place_was_taken_is_fenced_off():
    world = World()

    async def main():
        old = Member(world, "one").start()
        await asyncio.sleep(2.0)
        world.loop.pause(old.process)
        Member(world, "one").start()
        await asyncio.sleep(1.0)
        world.loop.resume(old.process)
        await asyncio.sleep(2.0)
        return old.failed

    assert isinstance(world.run(main()), KafkaError)


def test_a_member_that_does_not_poll_is_out_until_it_polls_again():
    world = World()

    async def main():
        one, two = Member(world, "one").start(), Member(world, "two").start()
        await asyncio.sleep(2.0)
        two.polls = False
        await asyncio.sleep(world.plan.scale.poll_seconds + 6.0)
        out = one.assigned, two.assigned
        two.polls = True
        await asyncio.sleep(3.0)
        return out, (one.assigned, two.assigned)

    assert world.run(main()) == (([0, 1], None), ([0], [1]))


def test_a_marker_takes_an_offset_that_no_record_has():
    world = World()

    async def main():
        consumer = world.alone("earliest")
        await consumer.start()
        tp = TopicPartition(TOPIC, 0)
        consumer.assign([tp])
        world.broker.append(TOPIC, 0, [Given(b"k", b"v", 0)], 0)
        world.broker.partition(TOPIC, 0).mark()
        await asyncio.sleep(0.1)
        records = (await consumer.getmany(tp, timeout_ms=100))[tp]
        return [r.offset for r in records], await consumer.position(tp)

    assert world.run(main()) == ([0], 2)


@pytest.mark.parametrize("kept_from", [1, 2])
def test_what_retention_took_is_not_read(kept_from):
    world = World()
    log = world.broker.partition(TOPIC, 0)
    for value in (b"a", b"b", b"c"):
        world.broker.append(TOPIC, 0, [Given(None, value, 0)], 0)
    log.keep_from(kept_from)

    async def main():
        consumer = world.alone("earliest")
        await consumer.start()
        tp = TopicPartition(TOPIC, 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        await asyncio.sleep(0.1)
        return [r.offset for r in (await consumer.getmany(tp, timeout_ms=100))[tp]]

    assert world.run(main()) == list(range(kept_from, 3))


@pytest.mark.parametrize(("begin", "position"), [(2, 1), (0, 4)])
def test_a_reader_without_another_place_to_go_is_told_that_its_own_is_not_there(begin, position):
    world = World()
    log = world.broker.partition(TOPIC, 0)
    for value in (b"a", b"b", b"c"):
        world.broker.append(TOPIC, 0, [Given(None, value, 0)], 0)
    log.keep_from(begin)
    tp = TopicPartition(TOPIC, 0)

    async def main():
        consumer = world.alone("none")
        await consumer.start()
        consumer.assign([tp])
        consumer.seek(tp, position)
        with pytest.raises(OffsetOutOfRangeError) as raised:
            await consumer.getmany(tp, timeout_ms=100)
        return raised.value.args[0]

    assert world.run(main()) == {tp: position}


@pytest.mark.parametrize(("enable_idempotence", "stored"), [(True, 1), (False, 2)])
def test_only_an_idempotent_producer_stores_once_what_it_sends_again(enable_idempotence, stored):
    world = World()

    async def main():
        sender = Process("sender")
        producer = world.producer(enable_idempotence=enable_idempotence)
        await world.spawn(sender, producer.start())
        world.network.cut("sender", mute=False, deaf=True)
        sending = world.spawn(sender, producer.send_and_wait(TOPIC, b"value", partition=0))
        await asyncio.sleep(1.0)
        world.network.heal("sender")
        await sending
        return len(world.records())

    assert world.run(main()) == stored


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_is_read_when_it_is_ended_and_never_if_it_was_given_up(is_committed):
    world = World()
    log = world.broker.partition(TOPIC, 0)
    tp = TopicPartition(TOPIC, 0)

    async def offsets(consumer):
        await asyncio.sleep(0.1)
        fetched = await consumer.getmany(tp, timeout_ms=100)
        return [record.offset for record in fetched.get(tp, [])]

    async def main():
        consumer = world.alone("earliest")
        await consumer.start()
        consumer.assign([tp])
        log.append([Given(None, b"before", 0)], 0)
        log.begin_transaction()
        log.append([Given(None, b"in it", 0), Given(None, b"too", 0)], 0)
        open_, end = await offsets(consumer), (await consumer.end_offsets([tp]))[tp]
        log.end_transaction(is_committed=is_committed)
        log.append([Given(None, b"behind", 0)], 0)
        return open_, end, await offsets(consumer), await consumer.position(tp)

    ended = [1, 2, 4] if is_committed else [4]
    assert world.run(main()) == ([0], 1, ended, 5)


def test_what_a_broker_has_lost_makes_room_for_something_else():
    world = World()
    log = world.broker.partition(TOPIC, 0)
    log.append([Given(None, b"a", 0), Given(None, b"b", 0)], 1.0, 7)
    log.append([Given(None, b"c", 0)], 2.0, 8)
    log.lose_from(1)
    assert log.append([Given(None, b"d", 0)], 3.0, 9).offset == 1
    assert log.append([Given(None, b"c", 0)], 4.0, 8).offset == 2, (
        "its sender is not known any more"
    )
    assert world.records() == [b"a", b"d", b"c"]
    assert [record.value for record, _ in log.history()] == [b"a", b"b", b"c", b"d", b"c"]
    world.loop.close()


def test_what_comes_while_nothing_can_be_read_is_read_from_its_end_on():
    log = Partition(TOPIC, 0)
    log.hold(5.0, 9.0)
    log.hold(8.0, 12.0)
    assert [log.read_from(at, 3.0) for at in (1.9, 2.1, 6.0, 12.0)] == [1.9, 12.0, 12.0, 12.0]
