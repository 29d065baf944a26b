"""Short conversations with the broker, for commands."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError

from shared.contracts.codec import decode
from shared.contracts.topics import Topic
from shared.runtime.kafka import make_consumer
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.runtime.slices import read_tail

T = TypeVar("T", bound=msgspec.Struct)

REACH_SECONDS = 3.0
READ_SECONDS = 10.0


def require_broker(settings: Settings) -> None:
    """Fail at once, rather than after a worker's patience, where no broker listens.

    Raises:
        KafkaConnectionError: nothing listens at any of the addresses.
    """
    reasons = []
    for server in settings.kafka_bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{server}: {error}")
        else:
            return
    raise KafkaConnectionError("; ".join(reasons))


async def publish_global(settings: Settings, topic: Topic, message: msgspec.Struct) -> None:
    """Publish a message about everything."""
    require_broker(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        await publisher.send_global(topic, message)
    finally:
        await publisher.stop()


async def publish_for_host(
    settings: Settings, topic: Topic, host: str, message: msgspec.Struct
) -> None:
    """Publish a message about a host or a page of it, and wait for the broker."""
    require_broker(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        await (await publisher.send_for_host(topic, host, message))
    finally:
        await publisher.stop()


async def last_records(settings: Settings, topic: Topic, count: int) -> list[ConsumerRecord]:
    """The last records of a single-partition topic, oldest first."""
    require_broker(settings)
    consumer = make_consumer(settings)
    try:
        await consumer.start()
        partition = TopicPartition(settings.topic(topic.name), 0)
        consumer.assign([partition])
        async with asyncio.timeout(READ_SECONDS):
            return (await read_tail(consumer, partition, count, least=count))[-count:]
    finally:
        await consumer.stop()


async def last_message(
    settings: Settings, topic: Topic, kind: type[T], check: Callable[[T], object]
) -> T | None:
    """The newest message of a single-partition topic that is taken; None: there is none.

    Args:
        settings: where the broker is.
        topic: which.
        kind: of the messages.
        check: raises a `ValueError` for one that its reader refuses.
    """
    for record in reversed(await last_records(settings, topic, 20)):
        with contextlib.suppress(ValueError):
            message = decode(kind, record.value)
            check(message)
            return message
    return None
