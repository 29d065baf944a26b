"""Short conversations with the broker, for commands."""

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError

from services.cli.errors import SystemFailed
from shared.contracts.codec import decode
from shared.contracts.topics import Topic
from shared.runtime.kafka import client_options, make_consumer, topic_partitions
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.runtime.slices import read_tail
from shared.runtime.wall_time import WALL

T = TypeVar("T", bound=msgspec.Struct)

REACH_SECONDS = 3.0
ANSWER_SECONDS = 15.0
"""All brokers together have so long to say anything."""

READ_SECONDS = 10.0
"""A broker that has brought nothing for so long, of what is there, is not waited for any more."""

READ_MS = 200

ACKNOWLEDGED_SECONDS = 30.0
"""Brokers that have stored nothing for so long, of what was sent, are not waited for any more."""

STOP_SECONDS = 1.0
"""Of a publisher whose broker has everything, or will not have it."""

_WHICH_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Its length and ApiVersions 0, which every broker answers, also before it knows who asks."""


class BrokerSilentError(KafkaConnectionError):  # type: ignore[misc]  # aiokafka is untyped
    """Something takes connections where the broker should be, and says nothing."""


def require_broker(settings: Settings) -> None:
    """Fail at once, rather than after a worker's patience, where no broker answers.

    One that hangs up, or disagrees on TLS, passes: who comes next says what it does not like.

    Raises:
        BrokerSilentError: there is something at one of the addresses, and it says nothing.
        KafkaConnectionError: nothing listens at any of them.
    """
    servers = settings.kafka_bootstrap_servers.split(",")
    tls = client_options(settings)["ssl_context"]
    reasons, silent = [], []
    for server in servers:
        try:
            _ask(server, tls, ANSWER_SECONDS / len(servers))
        except TimeoutError as error:
            silent.append(str(error))
        except (OSError, ValueError) as error:
            reasons.append(f"{server}: {error}")
        else:
            return
    if silent:
        raise BrokerSilentError("; ".join([*silent, *reasons]))
    raise KafkaConnectionError("; ".join(reasons))


def _ask(server: str, tls: ssl.SSLContext | None, seconds: float) -> None:
    """Ask a broker anything.

    Raises:
        TimeoutError: it says nothing.
        OSError: it is not there.
    """
    host, _, port = server.strip().rpartition(":")
    name = host.strip("[]")
    try:
        connection = socket.create_connection((name, int(port)), REACH_SECONDS)
    except TimeoutError as error:
        raise OSError(f"not reached within {REACH_SECONDS:g} s") from error
    with connection:
        connection.settimeout(seconds)
        try:
            with tls.wrap_socket(connection, server_hostname=name) if tls else connection as talk:
                talk.sendall(_WHICH_VERSIONS)
                talk.recv(1)
        except TimeoutError as error:
            raise TimeoutError(f"{server}: no answer within {seconds:g} s") from error
        except OSError:
            # It hangs up: it is there.
            return


async def publish_global(settings: Settings, topic: Topic, message: msgspec.Struct) -> None:
    """Publish a message about everything.

    Raises:
        SystemFailed: the broker does not acknowledge it.
    """
    async with publishing(settings) as publisher:
        await publisher.send_global(topic, message)


async def publish_for_host(
    settings: Settings, topic: Topic, host: str, message: msgspec.Struct
) -> None:
    """Publish a message about a host or a page of it, and wait for the broker.

    The record has the time of this process: a limit that comes before its host is erased goes too.

    Raises:
        SystemFailed: the broker does not acknowledge it.
    """
    async with publishing(settings) as publisher:
        await publisher.send_for_host(topic, host, message, at=WALL.now())


@contextlib.asynccontextmanager
async def publishing(settings: Settings) -> AsyncIterator[Publisher]:
    """A publisher for a command, which has sent all when this ends. The client itself would wait
    for ever for brokers that store nothing.

    Raises:
        SystemFailed: they have acknowledged nothing for long.
        KafkaError: something could not be delivered.
    """
    require_broker(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        async with asyncio.timeout(None) as patience:
            watching = asyncio.create_task(_end_if_stuck(publisher, patience))
            try:
                yield publisher
                await publisher.flush()
            finally:
                watching.cancel()
    except TimeoutError as error:
        if not patience.expired():
            raise
        raise SystemFailed(
            f"the brokers at {settings.kafka_bootstrap_servers} have acknowledged nothing for "
            f"{ACKNOWLEDGED_SECONDS:g} s of what was sent: one is away, or fewer copies of a topic "
            "are in sync than its min.insync.replicas demands. See to the brokers, then call this "
            "again. What was sent last may be there, or not"
        ) from error
    finally:
        await publisher.stop(STOP_SECONDS)


async def _end_if_stuck(publisher: Publisher, patience: asyncio.Timeout) -> None:
    left = ACKNOWLEDGED_SECONDS
    while left > 0.0:
        await asyncio.sleep(left)
        left = ACKNOWLEDGED_SECONDS - publisher.stuck_seconds
    patience.reschedule(asyncio.get_running_loop().time())


async def require_topic(settings: Settings, topic: Topic) -> None:
    """Fail at once where the broker lacks a topic: the client would look for it for long.

    Raises:
        UnknownTopicOrPartitionError: it does.
        KafkaConnectionError: no broker answers.
        AccessRefused: it does not let us in.
    """
    require_broker(settings)
    if not (await topic_partitions(settings, [topic]))[topic.name]:
        raise UnknownTopicOrPartitionError(settings.topic(topic.name))


async def last_records(settings: Settings, topic: Topic, count: int) -> list[ConsumerRecord]:
    """The last records of a single-partition topic, oldest first.

    Raises:
        UnknownTopicOrPartitionError: the broker lacks it.
        BrokerSilentError: the broker stopped answering.
    """
    await require_topic(settings, topic)
    consumer = make_consumer(settings)
    partition = TopicPartition(settings.topic(topic.name), 0)
    try:
        await consumer.start()
        consumer.assign([partition])
        async with asyncio.timeout(READ_SECONDS):
            return (await read_tail(consumer, partition, count, least=count))[-count:]
    except TimeoutError as error:
        raise _silent([partition]) from error
    finally:
        await consumer.stop()


async def read_up_to(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], most_records: int | None = None
) -> AsyncIterator[list[ConsumerRecord]]:
    """The records of assigned partitions from where they stand up to an offset, in parts, each of
    one partition.

    Args:
        consumer: to which the partitions are assigned.
        ends: the offset of each that is not read any more.
        most_records: of a part; None: as many as come.

    Raises:
        BrokerSilentError: nothing more came, though it is there. The client itself waits for ever.
    """
    at: dict[TopicPartition, int] = {}
    moved_at = time.monotonic()
    while True:
        try:
            async with asyncio.timeout(READ_SECONDS):
                now_at = {tp: await consumer.position(tp) for tp in ends}
                left = [tp for tp, end in ends.items() if now_at[tp] < end]
                if not left:
                    return
                if now_at != at:
                    at, moved_at = now_at, time.monotonic()
                elif time.monotonic() - moved_at > READ_SECONDS:
                    raise _silent(left)
                fetched = await consumer.getmany(
                    *left, timeout_ms=READ_MS, max_records=most_records
                )
        except TimeoutError as error:
            raise _silent(list(ends)) from error
        for tp, records in fetched.items():
            if part := [record for record in records if record.offset < ends[tp]]:
                yield part


def _silent(left: list[TopicPartition]) -> BrokerSilentError:
    topics = ", ".join(sorted({tp.topic for tp in left}))
    return BrokerSilentError(f"nothing more of {topics} came within {READ_SECONDS:g} s")


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
    value = await last_value(settings, topic, kind, check)
    return None if value is None else decode(kind, value)


async def last_value(
    settings: Settings, topic: Topic, kind: type[T], check: Callable[[T], object]
) -> bytes | None:
    """`last_message` as it was written."""
    for record in reversed(await last_records(settings, topic, 20)):
        with contextlib.suppress(ValueError):
            check(decode(kind, record.value))
            return bytes(record.value)
    return None
