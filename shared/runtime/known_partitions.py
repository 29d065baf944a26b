"""Writing to partitions that were added while the producer was running."""

import asyncio
import time
from typing import Any, Final

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

PATIENCE_SECONDS: Final = 30.0
"""A partition that brokers do not tell of for so long is not there."""

LOOK_SECONDS: Final = 0.1


def wait_for_new_partitions(producer: AIOKafkaProducer) -> None:
    """Let a started producer take records for partitions that it does not know of yet.

    aiokafka would call them a mistake of ours until it looks at the metadata again, by itself.
    Now it looks at once, and raises UnknownTopicOrPartitionError where that does not help.
    """
    send, send_batch = producer.send, producer.send_batch

    async def send_there(topic: str, *given: Any, **more: Any) -> Any:
        await _reach(producer, topic, more.get("partition"))
        return await send(topic, *given, **more)

    async def send_batch_there(batch: Any, topic: str, *, partition: int) -> Any:
        await _reach(producer, topic, partition)
        return await send_batch(batch, topic, partition=partition)

    producer.send, producer.send_batch = send_there, send_batch_there


async def _reach(producer: AIOKafkaProducer, topic: str, partition: int | None) -> None:
    """Wait until a partition is known.

    Raises:
        UnknownTopicOrPartitionError: there is no such partition.
    """
    cluster = producer.client.cluster
    wanted = None if partition is None else TopicPartition(topic, partition)
    if wanted is None or cluster.leader_for_partition(wanted) is not None:
        return
    await producer.partitions_for(topic)
    until = time.monotonic() + PATIENCE_SECONDS
    while cluster.leader_for_partition(wanted) is None:
        if time.monotonic() > until:
            raise UnknownTopicOrPartitionError(f"{topic} has no partition {partition}")
        await producer.client.force_metadata_update()
        if cluster.leader_for_partition(wanted) is None:
            await asyncio.sleep(LOOK_SECONDS)
