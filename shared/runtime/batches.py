"""Sending many records at once: prepared batches instead of a call a record."""

import time
from collections.abc import Iterable

from shared.contracts.topics import Topic
from shared.runtime import metrics
from shared.runtime.publisher import Publisher

Record = tuple[bytes, bytes]
"""Key and value."""


async def send_batches(
    publisher: Publisher, topic: Topic, by_partition: dict[int, list[Record]]
) -> None:
    """Queue records in order, a partition at a time; waits only where the queue is full."""
    name = publisher.settings.topic(topic.name)
    for partition, records in by_partition.items():
        await _send(publisher, name, partition, records)
        metrics.MESSAGES_PUBLISHED.labels(topic.name).inc(len(records))


async def _send(publisher: Publisher, name: str, partition: int, records: Iterable[Record]) -> None:
    producer = publisher.producer
    batch = producer.create_batch()
    now = int(time.time() * 1000)
    for key, value in records:
        if batch.append(key=key, value=value, timestamp=now) is None:
            batch.close()
            await producer.send_batch(batch, name, partition=partition)
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=now)
    batch.close()
    await producer.send_batch(batch, name, partition=partition)
