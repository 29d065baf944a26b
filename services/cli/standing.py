"""What operators have set, as it stands: on compacted topics, and of hosts in the databases, too.

Of what is about everything, or about a group, whoever reads it goes by the last message that is
taken, whatever its key is.

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

from services.cli.kafka import last_value, read_up_to, require_broker, require_topic
from shared.contracts.codec import decode, encode
from shared.contracts.messages import Bandwidth, GroupLimit, HostLimit
from shared.contracts.topics import BANDWIDTH, GLOBAL_KEY, GROUP_LIMITS, HOST_LIMITS, Topic
from shared.pacing.budget import Budget
from shared.rules.host_rules import HostRules, as_said, with_proper_host
from shared.runtime.aiokafka_patches import client_of
from shared.runtime.databases import databases_of
from shared.runtime.kafka import make_consumer, topic_partitions
from shared.runtime.settings import Settings
from shared.runtime.topic_metadata import topic_ids
from shared.store.asking_all import url_of
from shared.store.connection import connect
from shared.store.host_listing import ruled_hosts
from shared.store.positions import ESTIMATOR, read_positions
from shared.store.stream_topics import read_topics

Place = tuple[str, str]
"""What a message stands for on its topic: a host, a group or everything, and which rule of it; ""
where there is one."""

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


class Applied(NamedTuple):
    """How far an estimator has applied a partition."""

    offset: int
    """That it reads next."""
    topic_id: str | None
    """Of the topic that this is about, as its database says; None: not known."""


def parts_of(topic: Topic, value: bytes) -> list[tuple[str, bytes]]:
    """Which rules a message is about, with the message; one that is about two is parted."""
    if topic is not HOST_LIMITS:
        return [("", value)]
    plain: dict[str, Any] = msgspec.json.decode(value)
    if plain.get("only") is not None:
        return [(plain["only"], value)]
    # So that each part is taken for that host, too: what takes back all is more exact than others.
    about = {"host": as_said(name_of(topic, value))}
    parts = {
        rule: {name: said for name, said in plain.items() if name != other} | about | {"only": rule}
        for rule, other in _BOTH.items()
    }
    return [(rule, msgspec.json.encode(part)) for rule, part in parts.items()]


def name_of(topic: Topic, value: bytes) -> str:
    """Whom a message is about, as its readers know it, whatever its key.

    Raises:
        BadMessage, BadHost, ValueError: they refuse it.
    """
    if topic is HOST_LIMITS:
        return with_proper_host(decode(HostLimit, value)).host
    if topic is GROUP_LIMITS:
        return decode(GroupLimit, value).group
    Budget.from_message(decode(Bandwidth, value))
    return GLOBAL_KEY.decode()


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
    if topic is BANDWIDTH:
        budget = await last_value(settings, topic, Bandwidth, Budget.from_message)
        return {} if budget is None else {(name_of(topic, budget), ""): Stands(budget)}
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


def _applied(settings: Settings, partitions: set[int]) -> dict[int, Applied]:
    """How far estimators have applied `host-limits`, by partition."""
    found: dict[int, Applied] = {}
    for database, its in databases_of(settings).shared(partitions).items():
        with connect(url_of(database, "cli"), "cli") as connection:
            positions = read_positions(connection, ESTIMATOR, its)
            topic_id = read_topics(connection).get(HOST_LIMITS.name)
        found |= {
            partition: Applied(position, topic_id)
            for (topic, partition), position in positions.items()
            if topic == HOST_LIMITS.name
        }
    return found


def _of_databases(settings: Settings) -> Iterator[tuple[Place, Stands]]:
    """All rules of the hosts of which anything was said."""
    for database in databases_of(settings).each:
        for row in ruled_hosts(url_of(database, "cli")):
            for message in _messages(row["host"], HostRules.read(row)):
                is_set = message != HostLimit(message.host, only=message.only)
                place = row["host"], str(message.only)
                yield place, Stands(encode(message), row["limit_updated_at"], is_set)


def _messages(name: str, rules: HostRules) -> tuple[HostLimit, ...]:
    host = as_said(name)

    def known(number: float) -> float | None:
        return number if math.isfinite(number) else None

    return (
        HostLimit(host, only="limit", max_crawls_per_second=known(rules.limit)),
        HostLimit(host, only="block", blocked_until=known(rules.blocked_until)),
        HostLimit(host, only="crawl-delay", crawl_delay_seconds=known(rules.crawl_delay)),
        HostLimit(host, only="open", max_open_requests=rules.most_open or None),
    )


async def _read_last(
    settings: Settings, topic: Topic, applied: Mapping[int, Applied]
) -> dict[Place, bytes | None]:
    """The last message of each place, None where it is a tombstone, from where estimators have not
    applied it; from the beginning on where that is said of another topic, of before, or where it is
    not known of which: what is read twice stands all the same."""
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
        begin = await _begins(consumer, settings.topic(topic.name), applied)
        left = await _seek(consumer, ends, begin)
        async for records in read_up_to(consumer, {tp: ends[tp] for tp in left}):
            for record in records:
                _take(found, topic, record)
    finally:
        await consumer.stop()
    # A host that went to another shard may have rules on both partitions: the later ones stand.
    return {place: max(told.values(), key=itemgetter(0))[1] for place, told in found.items()}


async def _begins(
    consumer: AIOKafkaConsumer, name: str, applied: Mapping[int, Applied]
) -> dict[int, int]:
    """Partition → from where on it is to be read; of others, all is."""
    if not applied:
        return {}
    topic_id = (await topic_ids(client_of(consumer), [name])).get(name)
    return {
        partition: one.offset
        for partition, one in applied.items()
        if topic_id is not None and one.topic_id == topic_id
    }


async def _seek(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], begin: Mapping[int, int]
) -> set[TopicPartition]:
    """Go to where reading begins; the partitions where there is something to read. A log that
    ends before what was applied has lost its end: all of it is."""
    first: dict[TopicPartition, int] = await consumer.beginning_offsets(list(ends))
    for tp, end in ends.items():
        wanted = begin.get(tp.partition, 0)
        first[tp] = max(first[tp], wanted if wanted <= end else 0)
        consumer.seek(tp, first[tp])
    return {tp for tp, end in ends.items() if first[tp] < end}


def _take(found: _Found, topic: Topic, record: ConsumerRecord) -> None:
    """Let a record stand, on its partition, for all that it is about: its time and its value.

    A tombstone is about everything. What its readers refuse is left out.
    """
    parts: list[tuple[str, bytes | None]]
    try:
        if record.value is None:
            name = (record.key or b"").decode()
            parts = [(rule, None) for rule in (_RULES if topic is HOST_LIMITS else ("",))]
        else:
            name = name_of(topic, record.value)
            parts = [*parts_of(topic, record.value)]
    except ValueError:  # BadMessage, BadHost, or a key that is no text
        return
    for rule, value in parts:
        found.setdefault((name, rule), {})[record.partition] = record.timestamp, value
