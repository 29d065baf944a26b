"""Short conversations with the broker, for commands."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError

from shared.contracts.codec import decode
from shared.contracts.topics import Topic
from shared.runtime.kafka import client_options, make_consumer
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.runtime.slices import read_tail
from shared.runtime.wall_time import WALL

T = TypeVar("T", bound=msgspec.Struct)

REACH_SECONDS = 3.0
ANSWER_SECONDS = 15.0
"""All brokers together have so long to say anything."""

READ_SECONDS = 10.0

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
    """Publish a message about a host or a page of it, and wait for the broker.

    The record has the time of this process: a limit that comes before its host is erased goes too.
    """
    require_broker(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        await (await publisher.send_for_host(topic, host, message, at=WALL.now()))
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
