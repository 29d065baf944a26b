"""What brokers say of topics beyond what aiokafka asks for.

Which topic is meant by a name: one that is made anew under an old name has another id. aiokafka
asks for metadata of versions that do not have the ids yet, so the question is put here, in version
10 (Apache Kafka 2.8 and later).

And which partitions have a leader now: aiokafka waits for one, wherever it meets a partition that
has none, and tells nobody.
"""

import uuid
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NodeNotReadyError
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_NONE = uuid.UUID(int=0)


class _Uuid(AbstractType[uuid.UUID]):  # type: ignore[misc]  # aiokafka is untyped
    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


class _Answer(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_operations", Int32),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid),
                ("name", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Topics(Request[_Question]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names

    def build(self, request_struct_class: type[_Question]) -> _Question:
        asked: list[tuple[uuid.UUID, str, dict[int, bytes]]] = [
            (_NONE, name, {}) for name in self._names
        ]
        return request_struct_class(asked, False, False, False, {})


async def topic_ids(client: AIOKafkaClient, names: Iterable[str]) -> dict[str, str]:
    """The ids of topics; of those that are not there, or of brokers that give no ids, nothing.

    Args:
        client: connected.
        names: of the topics, as the broker has them.

    Raises:
        KafkaError: no broker answers.
    """
    return {
        name: str(topic_id)
        for error, name, topic_id, *_ in await _asked(client, names)
        if not error and topic_id != _NONE
    }


async def leaderless(client: AIOKafkaClient, names: Iterable[str]) -> dict[str, set[int]]:
    """The partitions of topics that no broker leads: nothing can be read of them, nor written.

    Args:
        client: connected.
        names: of the topics, as the broker has them; absent of the answer: all are led, or the
            brokers do not say.

    Raises:
        KafkaError: no broker answers.
    """
    found = {
        name: {number for _, number, leader, *_ in partitions if leader < 0}
        for _, name, _, _, partitions, *_ in await _asked(client, names)
    }
    return {name: numbers for name, numbers in found.items() if numbers}


async def _asked(client: AIOKafkaClient, names: Iterable[str]) -> Sequence[Any]:
    node = client.get_random_node()
    if node is None:
        raise NodeNotReadyError("no broker is known")
    try:
        answer: Any = await client.send(node, _Topics(names))
    except NotImplementedError:
        return ()
    topics: Sequence[Any] = answer.topics
    return topics
