"""What operators have set, as it stands: on compacted topics, and of hosts in the databases, too.

A message of `host-limits` is about one rule of a host, or about two, and the others stay: of each
rule the last one stands. But compaction knows hosts alone: it leaves the last message of each,
whichever rule that is about. The others are in the databases by then, where estimators have applied
them; what no estimator has read yet is on the topic, and goes before it.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from services.cli.kafka import read_up_to, require_broker, require_topic
from shared.contracts.codec import BadMessage, decode, encode
from shared.contracts.messages import HostLimit
from shared.contracts.topics import GROUP_LIMITS, HOST_LIMITS, Topic
from shared.rules.host_rules import HostRules
from shared.runtime.databases import databases_of
from shared.runtime.kafka import make_consumer, topic_partitions
from shared.runtime.settings import Settings
from shared.store.asking_all import url_of
from shared.store.host_listing import ruled_hosts
from shared.store.positions import ESTIMATOR, read_applied

Place = tuple[str, str]
"""What a message stands for on its topic: a key, and which rule of it; "" where there is one."""

_RULES: Final = ("limit", "block", "crawl-delay", "open")
"""Of a host, as `only` names them."""

_BOTH: Final = {"limit": "blocked_until", "block": "max_crawls_per_second"}
"""What a message is about that says no `only`, and the field that says nothing of it."""

_Found = dict[Place, dict[int, tuple[int, bytes | None]]]
"""By place and partition, the time and value of the last record."""


class Stands(NamedTuple):
    """A message that stands."""

    value: bytes
    said_at: float = math.inf
    """When anything was said of its key last, Unix seconds; infinite: it is on the topic."""
    is_set: bool = True
    """Whether there is such a rule: the database does not tell whether it was taken back."""


def parts_of(topic: Topic, value: bytes) -> list[tuple[str, bytes]]:
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


async def all_standing(settings: Settings, topic: Topic) -> dict[Place, Stands]:
    """What stands of a topic; of hosts, of the databases as well.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic, which must not look like one that has
            nothing. Limits of groups may be newer than the last `freshet topics ensure`.
        KafkaError: it cannot be read.
        BrokerSilentError: the broker stopped answering.
        psycopg.Error: a database is away, or refuses.
    """
    if topic is not GROUP_LIMITS:
        await require_topic(settings, topic)
    if topic is not HOST_LIMITS:
        return {
            place: Stands(value) for place, value in (await read_standing(settings, topic)).items()
        }
    partitions = (await topic_partitions(settings, [topic]))[topic.name]
    # Positions first: what is applied meanwhile is then read from both.
    applied = await asyncio.to_thread(_applied, settings, {tp.partition for tp in partitions})
    rules = await asyncio.to_thread(lambda: dict(_of_databases(settings)))
    for place, value in (await _read_last(settings, topic, applied)).items():
        rules.pop(place, None)
        if value is not None:
            rules[place] = Stands(value)
    return rules


async def read_standing(settings: Settings, topic: Topic) -> dict[Place, bytes]:
    """The messages of a compacted topic that stand; those that cannot be read are left out.

    A topic that is not there has none: it may be newer than the last `freshet topics ensure`.

    Raises:
        KafkaError: it cannot be read.
        BrokerSilentError: the broker stopped answering.
    """
    found = await _read_last(settings, topic, {})
    return {place: value for place, value in found.items() if value is not None}


def _applied(settings: Settings, partitions: set[int]) -> dict[int, int]:
    """Partition of `host-limits` → the next offset that its estimator reads."""
    found: dict[int, int] = {}
    for database, its in databases_of(settings).shared(partitions).items():
        url = url_of(database, "cli")
        for (topic, partition), position in read_applied(url, ESTIMATOR, its).items():
            if topic == HOST_LIMITS.name:
                found[partition] = position
    return found


def _of_databases(settings: Settings) -> Iterator[tuple[Place, Stands]]:
    """All rules of the hosts of which anything was said."""
    for database in databases_of(settings).each:
        for row in ruled_hosts(url_of(database, "cli")):
            for message in _messages(row["host"], HostRules.read(row)):
                is_set = message != HostLimit(message.host, only=message.only)
                place = message.host, str(message.only)
                yield place, Stands(encode(message), row["limit_updated_at"], is_set)


def _messages(host: str, rules: HostRules) -> tuple[HostLimit, ...]:
    def known(number: float) -> float | None:
        return number if math.isfinite(number) else None

    return (
        HostLimit(host, only="limit", max_crawls_per_second=known(rules.limit)),
        HostLimit(host, only="block", blocked_until=known(rules.blocked_until)),
        HostLimit(host, only="crawl-delay", crawl_delay_seconds=known(rules.crawl_delay)),
        HostLimit(host, only="open", max_open_requests=rules.most_open or None),
    )


async def _read_last(
    settings: Settings, topic: Topic, begin: Mapping[int, int]
) -> dict[Place, bytes | None]:
    """The last message of each place, None where it is a tombstone, from an offset on by partition;
    where there is no such offset, from the beginning on: it is of another topic, of before."""
    require_broker(settings)
    consumer = make_consumer(settings)
    found: _Found = {}
    try:
        await consumer.start()
        partitions = (await topic_partitions(settings, [topic]))[topic.name]
        if not partitions:
            return {}
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        left = await _seek(consumer, ends, begin)
        async for records in read_up_to(consumer, {tp: ends[tp] for tp in left}):
            for record in records:
                _take(found, topic, record)
    finally:
        await consumer.stop()
    # A host that went to another shard may have rules on both partitions: the later ones stand.
    return {place: max(told.values(), key=itemgetter(0))[1] for place, told in found.items()}


async def _seek(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], begin: Mapping[int, int]
) -> set[TopicPartition]:
    """Go to where reading begins; the partitions where there is something to read."""
    first: dict[TopicPartition, int] = await consumer.beginning_offsets(list(ends))
    for tp, end in ends.items():
        wanted = begin.get(tp.partition, 0)
        first[tp] = max(first[tp], wanted if wanted <= end else 0)
        consumer.seek(tp, first[tp])
    return {tp for tp, end in ends.items() if first[tp] < end}


def _take(found: _Found, topic: Topic, record: ConsumerRecord) -> None:
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
            parts = [*parts_of(topic, record.value)]
    except (BadMessage, UnicodeDecodeError):
        return
    for rule, value in parts:
        found.setdefault((name, rule), {})[record.partition] = record.timestamp, value
