"""Consumer groups share partitions, survive restarts and remember offsets, on both brokers."""

import asyncio

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.structs import OffsetAndMetadata

FAST = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}


class Rebalances(ConsumerRebalanceListener):
    """Notes what a consumer was given, each time."""

    def __init__(self) -> None:
        self.assigned: list[set[int]] = []

    async def on_partitions_revoked(self, revoked) -> None:
        pass

    async def on_partitions_assigned(self, assigned) -> None:
        self.assigned.append({place.partition for place in assigned})


async def join(clients, topic, group, **options):
    """Start a consumer in a group; return it and what it is given."""
    rebalances = Rebalances()
    consumer = await clients.consumer(group_id=group, **FAST, **options)
    consumer.subscribe([topic], listener=rebalances)
    return consumer, rebalances


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def test_two_members_share_the_partitions_and_one_takes_over(clients, read, unique):
    await clients.create_topic(unique, 4)
    one, of_one = await join(clients, unique, unique)
    await until(lambda: of_one.assigned == [{0, 1, 2, 3}])
    _, of_two = await join(clients, unique, unique)
    await until(lambda: of_two.assigned and len(of_one.assigned) == 2)
    shares = of_one.assigned[-1], of_two.assigned[-1]
    assert sorted(map(len, shares)) == [2, 2]
    assert shares[0] | shares[1] == {0, 1, 2, 3}
    producer = await clients.producer()
    for partition in range(4):
        await producer.send_and_wait(unique, b"x", partition=partition)
    assert {record.partition for record in await read(one, 2)} == shares[0]
    third, of_third = await join(clients, unique, unique)
    await until(lambda: of_third.assigned)
    await third.stop()  # leaves the group at once
    await until(lambda: of_one.assigned[-1] | of_two.assigned[-1] == {0, 1, 2, 3})


async def test_a_silent_member_loses_its_partitions(clients, unique):
    await clients.create_topic(unique, 2)
    options = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 100}
    dead, of_dead = Rebalances(), Rebalances()
    one = await clients.consumer(group_id=unique, **options)
    one.subscribe([unique], listener=of_dead)
    await until(lambda: of_dead.assigned)
    two = await clients.consumer(group_id=unique, **options)
    two.subscribe([unique], listener=dead)
    await until(lambda: dead.assigned and len(dead.assigned[-1]) == 1)
    two._coordinator._heartbeat_task.cancel()
    two._coordinator._coordination_task.cancel()
    await until(lambda: of_dead.assigned[-1] == {0, 1})


async def test_a_static_member_restarts_without_a_rebalance(clients, unique):
    await clients.create_topic(unique, 4)
    _, of_one = await join(clients, unique, unique, group_instance_id="one")
    await until(lambda: of_one.assigned)
    two, of_two = await join(clients, unique, unique, group_instance_id="two")
    await until(lambda: of_two.assigned and len(of_one.assigned) == 2)
    await two.stop()  # a static member does not leave
    _, of_restarted = await join(clients, unique, unique, group_instance_id="two")
    await until(lambda: of_restarted.assigned)
    assert of_restarted.assigned == [of_two.assigned[-1]]
    await asyncio.sleep(1.0)  # several heartbeats: a rebalance would have been noticed
    assert len(of_one.assigned) == 2


async def test_committed_offsets_are_where_the_next_consumer_starts(clients, read, unique):
    await clients.create_topic(unique, 2)
    producer = await clients.producer()
    for number in range(10):
        await producer.send_and_wait(unique, b"%d" % number, partition=number % 2)
    first = await clients.consumer(unique, group_id=unique, enable_auto_commit=False, **FAST)
    await read(first, 10)
    place = TopicPartition(unique, 0)
    await first.commit({place: OffsetAndMetadata(3, "so far")})
    await first.stop()
    second = await clients.consumer(unique, group_id=unique, enable_auto_commit=False, **FAST)
    assert await second.committed(place) == 3
    assert await second.committed(TopicPartition(unique, 1)) is None
    values = [record.value for record in await read(second, 7)]
    assert sorted(values) == sorted([b"6", b"8", b"1", b"3", b"5", b"7", b"9"])


async def test_groups_are_listed_described_and_deleted(clients, unique):
    await clients.create_topic(unique, 1)
    consumer, rebalances = await join(clients, unique, unique)
    await until(lambda: rebalances.assigned)
    admin = await clients.admin()
    assert unique in [group[0] for group in await admin.list_consumer_groups()]
    await consumer.commit({TopicPartition(unique, 0): 0})
    offsets = await admin.list_consumer_group_offsets(unique)
    assert offsets[TopicPartition(unique, 0)].offset == 0
    (answer,) = await admin.describe_consumer_groups([unique])
    error, name, state, kind, _, members = answer.groups[0][:6]
    assert (error, name, state, kind, len(members)) == (0, unique, "Stable", "consumer", 1)
