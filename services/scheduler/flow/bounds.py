"""Where topics begin and end, in partitions that this process need not read."""

from collections.abc import Collection
from typing import NamedTuple

from aiokafka import TopicPartition

from services.scheduler.flow.away import together
from shared.contracts.topics import Topic
from shared.runtime.kafka import make_consumer
from shared.runtime.settings import Settings

Offsets = dict[tuple[str, int], int]
"""(topic without prefix, partition) → offset."""


class Bounds(NamedTuple):
    """Of partitions."""

    begins: Offsets
    ends: Offsets
    """Where the oldest transaction begins that is not ended yet, if there is one."""


async def bounds_of(
    settings: Settings, topics: Collection[Topic], partitions: Collection[int]
) -> Bounds:
    """Where each topic partition begins and ends now.

    Args:
        settings: where the brokers are.
        topics: each has all of the partitions.
        partitions: asked for.

    Raises:
        KafkaError: the brokers cannot be asked.
    """
    consumer = make_consumer(settings)
    try:
        await consumer.start()
        names = {
            TopicPartition(settings.topic(topic.name), number): (topic.name, number)
            for topic in topics
            for number in partitions
        }
        consumer.assign(list(names))
        begins, ends = await together(
            consumer.beginning_offsets(list(names)), consumer.end_offsets(list(names))
        )
    finally:
        await consumer.stop()
    return Bounds(
        {key: begins[tp] for tp, key in names.items()},
        {key: ends[tp] for tp, key in names.items()},
    )
