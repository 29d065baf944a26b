"""Reading topics from their beginning to their end, past all consumer groups."""

import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from msgspec import Struct

from shared.contracts.codec import BadMessage, decode
from shared.contracts.identity import BadUrl, identify
from shared.contracts.topics import Topic
from shared.runtime.kafka import make_consumer, topic_partitions
from shared.runtime.settings import Settings

READ_SECONDS: Final = 300.0
"""Reading a topic through takes no longer, or its end cannot be reached."""

M = TypeVar("M", bound=Struct)


class Unreadable(RuntimeError):
    """A topic could not be read to its end."""


async def read_topic(settings: Settings, topic: Topic) -> list[ConsumerRecord]:
    """All records of a topic, partition by partition, in order of offset.

    Raises:
        Unreadable: the end that the broker names is not reached.
        KafkaError: the broker does not answer.
    """
    consumer = make_consumer(settings, fetch_max_wait_ms=50)
    await consumer.start()
    try:
        name = settings.topic(topic.name)
        partitions = (await topic_partitions(settings, [topic]))[topic.name]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        found: dict[TopicPartition, list[ConsumerRecord]] = {tp: [] for tp in partitions}
        deadline = time.monotonic() + READ_SECONDS
        while await _is_behind(consumer, ends):
            if time.monotonic() > deadline:
                raise Unreadable(f"topic {name} cannot be read to its end")
            for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                found[tp] += records
        return [record for tp in partitions for record in found[tp]]
    finally:
        await consumer.stop()


async def _is_behind(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    for tp, end in ends.items():
        if await consumer.position(tp) < end:
            return True
    return False


async def end_offsets(settings: Settings, topics: Iterable[Topic]) -> dict[tuple[str, int], int]:
    """Where topics end now: (topic, partition) → next offset."""
    there = await topic_partitions(settings, topics)
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        names = {tp: (name, tp.partition) for name, part in there.items() for tp in part}
        ends = await consumer.end_offsets(list(names))
        return {names[tp]: end for tp, end in ends.items()}
    finally:
        await consumer.stop()


def decoded(kind: type[M], records: Iterable[ConsumerRecord]) -> list[tuple[ConsumerRecord, M]]:
    """The records that can be read, with their messages."""
    taken = []
    for record in records:
        with contextlib.suppress(BadMessage):
            taken.append((record, decode(kind, record.value)))
    return taken


def _has_good_url(message: Any) -> bool:
    """Whether the URL, if there is one, is a page's."""
    try:
        return not hasattr(message, "url") or bool(identify(message.url).url)
    except BadUrl:
        return False


_TAIL: Final = 200
"""Records of a partition among which a good message is looked for."""


async def last_message(settings: Settings, topic: Topic) -> dict[str, Any] | None:
    """The newest good message of a topic; None: there is none among the last ones."""
    consumer = make_consumer(settings, fetch_max_wait_ms=50)
    await consumer.start()
    try:
        partitions = (await topic_partitions(settings, [topic]))[topic.name]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        begins = await consumer.beginning_offsets(partitions)
        for tp in partitions:
            consumer.seek(tp, max(begins[tp], ends[tp] - _TAIL))
        found: list[ConsumerRecord] = []
        while await _is_behind(consumer, ends):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
    finally:
        await consumer.stop()
    kind = topic.message or Struct
    good = [record for record, message in decoded(kind, found) if _has_good_url(message)]
    if not good:
        return None
    message: dict[str, Any] = json.loads(max(good, key=lambda record: record.timestamp).value)
    return message
