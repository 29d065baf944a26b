"""Shards grow in the simulator: the command, the topics, the database, and what the checks say."""

import asyncio
from random import Random

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import LeaderNotAvailableError
from examples import some

from services.verify.simulation.blocking import Blocking, sleep
from services.verify.simulation.campaign import judge, warm_up
from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.kafka.consumer import Consumer
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.kafka.producer import Producer
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import KINDS, Scale, draw_plan
from services.verify.simulation.process import OUTSIDE, Process
from services.verify.simulation.run import simulate
from services.verify.simulation.store.holdings import Holding, Holdings

TOPIC = "crawl-outcomes"
PARTITIONS = 2
GROWING = Scale(kinds=("growth", "kill", "database-down", "broker-down"))


class World:
    def __init__(self):
        self.loop = VirtualLoop(Random(1))
        self.broker = Broker(self.loop, PARTITIONS, frozenset())
        self.network = Network(self.loop, Random(2), 0.0)
        self.plan = draw_plan(1, Scale(kinds=()))

    def run(self, main):
        task = self.loop.create_task(main, context=OUTSIDE.context())
        try:
            return self.loop.run_until_complete(task)
        finally:
            self.loop.end()

    def consumer(self, instance):
        options = {
            "group_id": "group",
            "group_instance_id": instance,
            "session_timeout_ms": 3000,
            "heartbeat_interval_ms": 300,
            "auto_offset_reset": "none",
        }
        return Consumer(self.loop, self.broker, self.network, Random(3), options, self.plan)


class Member:
    """Reads for a group, and notes what it is given."""

    def __init__(self, world, name):
        self.assigned = None
        self.world, self.name = world, name
        world.loop.create_task(self._read(), context=Process(name).context())

    async def on_partitions_revoked(self, revoked):
        """They may be somebody else's soon."""

    async def on_partitions_assigned(self, assigned):
        self.assigned = sorted({tp.partition for tp in assigned})

    async def _read(self):
        consumer = self.world.consumer(self.name)
        await consumer.start()
        consumer.subscribe([TOPIC], listener=self)
        while True:
            await consumer.getmany(timeout_ms=100)
            for tp in consumer.assignment():
                consumer.pause(tp)


def test_a_group_shares_partitions_that_were_added_once_its_leader_knows_of_them():
    world = World()

    async def main():
        members = [Member(world, name) for name in ("a", "b")]
        await asyncio.sleep(5.0)
        before = [member.assigned for member in members]
        world.broker.add_partitions(TOPIC, 3 * PARTITIONS)
        await asyncio.sleep(8.0)
        return before, [member.assigned for member in members]

    assert world.run(main()) == ([[0], [1]], [[0, 2, 4], [1, 3, 5]])


def test_a_producer_learns_of_new_partitions_later_and_at_once_if_it_asks():
    world = World()

    async def main():
        producer = Producer(world.loop, world.broker, world.network, enable_idempotence=True)
        await producer.start()
        world.broker.add_partitions(TOPIC, 3 * PARTITIONS)
        before = len(await producer.partitions_for(TOPIC))
        await producer.client.force_metadata_update()
        return before, len(await producer.partitions_for(TOPIC))

    assert world.run(main()) == (PARTITIONS, 3 * PARTITIONS)


def test_who_asks_about_a_partition_without_a_leader_hears_so_and_asks_again():
    world = World()
    tp = TopicPartition(TOPIC, 0)

    async def main():
        consumer = world.consumer("a")
        log = world.broker.partition(TOPIC, 0)
        log.hold(0.0, 2.0)
        with pytest.raises(LeaderNotAvailableError):
            await world.network.ask(lambda: consumer._led(tp))
        return await consumer.end_offsets([tp]), world.loop.now

    ends, now = world.run(main())
    assert ends == {tp: 0}
    assert now >= 2.0


def waiting(ended, noted):
    world = World()
    process = Process("command")

    def call():
        for _ in range(3):
            sleep(1.5)
            noted.append(world.loop.now)

    return world, Blocking(world.loop, process, call, ended.append)


def test_a_program_that_sleeps_goes_on_at_its_time_while_others_run():
    ended, noted = [], []
    world, program = waiting(ended, noted)

    async def main():
        program.start()
        await asyncio.sleep(10.0)

    world.run(main())
    assert [round(at, 2) for at in noted] == [1.5, 3.0, 4.5]
    assert ended == [None]


def test_a_program_that_is_killed_takes_no_other_step():
    ended, noted = [], []
    world, program = waiting(ended, noted)

    async def main():
        program.start()
        await asyncio.sleep(2.0)
        program.kill()
        await asyncio.sleep(8.0)

    world.run(main())
    assert len(noted) == 1
    assert ended == []


def test_a_program_says_how_it_failed():
    ended = []
    world = World()

    def fail():
        sleep(0.5)
        raise ValueError("no")

    async def main():
        Blocking(world.loop, Process("command"), fail, ended.append).start()
        await asyncio.sleep(1.0)

    world.run(main())
    assert [str(error) for error in ended] == ["no"]


def test_shards_grow_twice_at_most_in_a_part_of_the_seeds_and_where_it_is_asked_for_in_each():
    def grows(seed, scale):
        return sum(fault.kind == "growth" for fault in draw_plan(seed, scale).faults)

    usual = [grows(seed, Scale()) for seed in range(200)]
    assert set(usual) == {0, 1, 2}
    assert 10 < sum(map(bool, usual)) < 50
    assert {grows(seed, GROWING) for seed in range(20)} == {1, 2}
    others = Scale(kinds=tuple(kind for kind in KINDS if kind != "growth"))
    assert {grows(seed, others) for seed in range(100)} == {0}


@pytest.mark.slow(2)
@pytest.mark.parametrize("seed", some(range(4), 2))
def test_every_promise_holds_while_shards_grow(seed):
    warm_up()
    result = simulate(draw_plan(seed, GROWING))
    assert result.broken == ()
    assert any("is split" in what for _, _, what in result.story)
    held = next(finding for finding in result.findings if finding.check == "held")
    assert held.looked_at > 0


def test_a_shard_is_held_until_it_is_loaded_or_the_split_is_given_up_however_often_that_is_said():
    holdings = Holdings()
    holdings.end(3, 1.0)
    holdings.begin(3, 2.0)
    holdings.begin(3, 3.0)
    holdings.begin(4, 3.5)
    holdings.end(3, 4.0)
    holdings.end(3, 5.0)
    holdings.begin(3, 6.0)
    assert holdings.ever == [Holding(3, 2.0, 4.0), Holding(4, 3.5), Holding(3, 6.0)]


@pytest.mark.long
@pytest.mark.slow(4)
def test_a_growth_tells_the_same_story_each_time():
    warm_up()
    scale = Scale(kinds=("growth",))
    assert judge(7, scale).fingerprint == judge(7, scale).fingerprint
