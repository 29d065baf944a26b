"""What operators have set and PostgreSQL does not hold: the budget, and the limits of hosts.

They stand on compacted topics. A copy of them is a file of JSON lines: a head, then a line for each
message that stands, with its topic and key. Beside a dump of the database that is everything.

A message of `host-limits` is about one rule of a host, or about two, and the others stay: of each
rule the last one stands.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
from aiokafka import ConsumerRecord

from services.cli.errors import UserError
from services.cli.kafka import READ_SECONDS, require_broker
from shared.contracts.codec import MAX_MESSAGE_BYTES, BadMessage, decode
from shared.contracts.topics import BANDWIDTH, GROUP_LIMITS, HOST_LIMITS, Topic
from shared.runtime.kafka import make_consumer, topic_partitions
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings

SAVED: Final[tuple[Topic, ...]] = (BANDWIDTH, GROUP_LIMITS, HOST_LIMITS)
"""What operators write. `multipliers` is compacted too, but the coordinator makes it anew."""

FORMAT: Final = 1

Place = tuple[str, str]
"""What a message stands for on its topic: a key, and which rule of it; "" where there is one."""

_RULES: Final = ("limit", "block", "crawl-delay", "open")
"""Of a host, as `only` names them."""

_BOTH: Final = {"limit": "blocked_until", "block": "max_crawls_per_second"}
"""What a message is about that says no `only`, and the field that says nothing of it."""

MOST_LINE_BYTES: Final = 4 * MAX_MESSAGE_BYTES


class Head(msgspec.Struct, frozen=True):
    """The first line of a copy."""

    freshet_backup: int
    saved_at: float
    """Unix seconds."""


class Line(msgspec.Struct, frozen=True):
    """A message that stands."""

    topic: str
    """Without prefix."""
    key: str
    message: msgspec.Raw
    """As it was written, or the part about one rule: what this version does not know stays."""


@dataclass(slots=True)
class Restored:
    """What became of the messages of a copy."""

    restored: int = 0
    same: int = 0
    newer: int = 0
    """Another message stands, which stays."""
    keys: list[str] = field(default_factory=list)
    """The first of those that were restored."""

    def count(self, key: str, there: bytes | None, value: bytes, *, overwrite: bool) -> bool:
        """Count what becomes of a message; whether it is to be published.

        Args:
            key: its own.
            there: what stands in its place; None: nothing.
            value: what the copy has.
            overwrite: whether that goes before another one that stands.
        """
        if there is not None and _same(there, value):
            self.same += 1
            return False
        if there is not None and not overwrite:
            self.newer += 1
            return False
        self.restored += 1
        if key not in self.keys and len(self.keys) < 10:
            self.keys.append(key)
        return True


def read_copy(file: TextIO) -> Iterator[Line]:
    """The messages of a copy.

    Raises:
        UserError: it is none, or a line of it is damaged; says which.
    """
    number = 0
    for number, text in enumerate(_lines(file), start=1):
        try:
            if number == 1:
                head = msgspec.json.decode(text, type=Head)
                if head.freshet_backup != FORMAT:
                    raise UserError(f"the copy is of format {head.freshet_backup}, not {FORMAT}")
                continue
            line = msgspec.json.decode(text, type=Line)
            topic = _saved(line.topic)
            if topic.message is not None:
                decode(topic.message, bytes(line.message))
        except (msgspec.MsgspecError, BadMessage) as error:
            raise UserError(f"line {number} of the copy cannot be read: {error}") from error
        yield line
    if not number:
        raise UserError("the file is empty: it is no copy")


def _lines(file: TextIO) -> Iterator[str]:
    while text := file.readline(MOST_LINE_BYTES + 1):
        if len(text) > MOST_LINE_BYTES:
            raise UserError("a line of the copy is too long: it is another file")
        yield text


def _saved(name: str) -> Topic:
    for topic in SAVED:
        if topic.name == name:
            return topic
    raise UserError(f"the copy has messages of {name!r}, which no copy has")


async def save(settings: Settings, path: Path) -> dict[str, int]:
    """Write a copy; the file is there when all of it is.

    Returns:
        topic → messages.

    Raises:
        KafkaError: a topic cannot be read.
        UserError: the file cannot be written.
    """
    counts = {}
    lines = [msgspec.json.encode(Head(FORMAT, settings.clock().now()))]
    for topic in SAVED:
        standing = await read_standing(settings, topic)
        counts[topic.name] = len(standing)
        lines += [
            msgspec.json.encode(Line(topic.name, key, msgspec.Raw(value)))
            for (key, _), value in sorted(standing.items())
        ]
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.write_bytes(b"\n".join(lines) + b"\n")
        unfinished.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    return counts


async def restore(
    settings: Settings, lines: Iterable[Line], *, overwrite: bool, dry_run: bool
) -> Restored:
    """Publish what a copy has and the topics lack.

    Args:
        settings: of the installation.
        lines: of the copy.
        overwrite: where another message stands, publish that of the copy all the same.
        dry_run: only say what would be done.

    Raises:
        KafkaError: a topic cannot be read or written.
    """
    standing = {topic.name: await read_standing(settings, topic) for topic in SAVED}
    done = Restored()
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for line in lines:
            topic = _saved(line.topic)
            for rule, value in _parts(topic, bytes(line.message)):
                there = standing[topic.name].get((line.key, rule))
                if done.count(line.key, there, value, overwrite=overwrite) and not dry_run:
                    # Without a partition: Kafka's own rule is the shards', and any number will do.
                    await publisher.send(topic, line.key.encode(), value)
        await publisher.flush()
    finally:
        await publisher.stop()
    return done


def _parts(topic: Topic, value: bytes) -> list[tuple[str, bytes]]:
    """Which rules a message is about, with the message; one that is about two is parted."""
    if topic is not HOST_LIMITS:
        return [("", value)]
    plain: dict[str, Any] = msgspec.json.decode(value)
    if plain.get("only") is not None:
        return [(plain["only"], value)]
    parts = {
        rule: {name: said for name, said in plain.items() if name != other} | {"only": rule}
        for rule, other in _BOTH.items()
    }
    return [(rule, msgspec.json.encode(part)) for rule, part in parts.items()]


def _same(one: bytes, other: bytes) -> bool:
    plain: list[Any] = [msgspec.json.decode(value) for value in (one, other)]
    return bool(plain[0] == plain[1])


async def read_standing(settings: Settings, topic: Topic) -> dict[Place, bytes]:
    """The messages of a compacted topic that stand; those that cannot be read are left out.

    A topic that is not there has none: it may be newer than the last `freshet topics ensure`.

    Raises:
        KafkaError: it cannot be read.
        TimeoutError: the broker stopped answering.
    """
    require_broker(settings)
    consumer = make_consumer(settings)
    found: dict[Place, dict[int, tuple[int, bytes | None]]] = {}
    try:
        await consumer.start()
        partitions = (await topic_partitions(settings, [topic]))[topic.name]
        if not partitions:
            return {}
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        begins = await consumer.beginning_offsets(partitions)
        left = {tp for tp in partitions if begins[tp] < ends[tp]}
        await consumer.seek_to_beginning(*partitions)
        while left:
            async with asyncio.timeout(READ_SECONDS):
                fetched = await consumer.getmany(timeout_ms=200)
                for records in fetched.values():
                    for record in records:
                        _take(found, topic, record)
                left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
    finally:
        await consumer.stop()
    # A host that went to another shard may have rules on both partitions: the later ones stand.
    standing = {place: max(told.values(), key=itemgetter(0))[1] for place, told in found.items()}
    return {place: value for place, value in standing.items() if value is not None}


def _take(
    found: dict[Place, dict[int, tuple[int, bytes | None]]], topic: Topic, record: ConsumerRecord
) -> None:
    """Let a record stand, on its partition, for all that it is about: its time and its value.

    A tombstone is about everything.
    """
    parts: list[tuple[str, bytes | None]]
    try:
        name = (record.key or b"").decode()
        if record.value is None:
            parts = [(rule, None) for rule in (_RULES if topic is HOST_LIMITS else ("",))]
        else:
            if topic.message is not None:
                decode(topic.message, record.value)
            parts = [*_parts(topic, record.value)]
    except (BadMessage, UnicodeDecodeError):
        return
    for rule, value in parts:
        found.setdefault((name, rule), {})[record.partition] = record.timestamp, value
