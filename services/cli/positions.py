"""Where the workers stand in what they read, and how to go on where a stream was broken."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import psycopg
from aiokafka import AIOKafkaConsumer, OffsetAndMetadata, TopicPartition

from services.cli.errors import UserError
from services.cli.kafka import require_broker
from services.discoverer.worker import GROUP as DISCOVERERS
from services.discoverer.worker import TOPICS as DISCOVERED
from services.estimator.worker import GROUP as ESTIMATORS
from services.estimator.worker import TOPICS as ESTIMATED
from services.ingester.reading import GROUP as INGESTERS
from shared.contracts.databases import Database
from shared.contracts.topics import HOST_PARAMETERS, PAGE_PARAMETERS, SIGNALS, Topic
from shared.runtime.aiokafka_patches import client_of
from shared.runtime.databases import databases_of
from shared.runtime.kafka import (
    administering,
    client_options,
    make_consumer,
    may_pass,
    topic_partitions,
)
from shared.runtime.retrying import Attempts, until_it_passes
from shared.runtime.settings import Settings
from shared.runtime.topic_metadata import topic_ids
from shared.store.asking_all import ask_all
from shared.store.connection import connect
from shared.store.layout import fetch_layout
from shared.store.positions import ESTIMATOR
from shared.store.stream_topics import read_topics, set_topic

INGESTER: Final = "ingester"
DISCOVERER: Final = "discoverer"

COMMITTED: Final[dict[str, tuple[Topic, ...]]] = {INGESTER: (SIGNALS,), DISCOVERER: DISCOVERED}
"""Consumer → topics whose positions its group keeps in Kafka."""

STORED: Final[tuple[Topic, ...]] = (*ESTIMATED, PAGE_PARAMETERS, HOST_PARAMETERS)
"""Topics whose positions are in the database. Schedulers begin from them too."""

GROUPS: Final = {INGESTER: INGESTERS, DISCOVERER: DISCOVERERS, ESTIMATOR: ESTIMATORS}

PATIENCE_SECONDS: Final = 10.0
"""A broker that was started a moment ago may not yet know who coordinates a group."""

_NOBODY: Final = {"Empty", "Dead", ""}
"""States of a group without members."""

State = Literal["ok", "gap", "beyond end", "other topic"]

At = Literal["start", "end"]


class StillRunning(Exception):
    """Workers run whose positions are to be changed; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A consumer in a partition of a topic; offsets."""

    consumer: str
    topic: str
    """Without prefix."""
    partition: int
    position: int | None
    """What is read next; None: nothing was ever read."""
    log_start: int
    log_end: int
    """Where the oldest transaction begins that is not ended yet, if there is one."""
    topic_id: str | None
    """Of the topic on the broker; None: it gives none."""
    known_id: str | None
    """Of the topic that the position is about, as its database says; None: not known."""

    @property
    def lag(self) -> int:
        """Offsets that are there to be read."""
        start = self.log_start if self.position is None else self.position
        return max(self.log_end - max(start, self.log_start), 0)

    @property
    def state(self) -> State:
        """Whether it can be read on from there."""
        if self.topic_id and self.known_id and self.topic_id != self.known_id:
            return "other topic"
        if self.position is None:
            return "ok"
        if self.position < self.log_start:
            return "gap"
        return "beyond end" if self.position > self.log_end else "ok"

    def settled_at(self, at: At) -> int:
        """Where reading is to go on. A gap is gone, wherever that is."""
        return self.log_end if at == "end" and self.state != "gap" else self.log_start

    def given_up(self, at: At) -> str:
        """What settling costs."""
        if self.state == "gap":
            return f"{self.position} to {self.log_start - 1} are gone"
        if self.log_start == self.log_end:
            return "nothing is there"
        whole = f"{self.log_start} to {self.log_end - 1}"
        return f"{whole} are never read" if at == "end" else f"nothing: {whole} are read again"


async def places(settings: Settings) -> tuple[list[Place], dict[Database, str]]:
    """Where every consumer stands, by consumer, topic and partition; discoverers, which are
    optional, where there ever was one. Of several databases, also which are away, and why: the
    positions in them are left out.

    Raises:
        UserError: the broker lacks a topic that workers read, or partitions that they have read.
        KafkaError: the broker cannot be asked.
        psycopg.Error: the only database, or each of them, cannot be asked.
        StoreMismatch: each of several has no tables, or other shards.
    """
    require_broker(settings)
    stored, known, away = _stored(settings)
    databases = databases_of(settings)
    topics = [*STORED, *(topic for topics in COMMITTED.values() for topic in topics)]
    read = {topic.name: topic for topic in topics}.values()
    there = await topic_partitions(settings, read)
    _require_topics(settings, there)
    _require_partitions(settings, there, stored, next(iter(known)))
    committed = {reader: await _committed(settings, reader, there) for reader in COMMITTED}
    wanted = [
        *((INGESTER, topic) for topic in COMMITTED[INGESTER]),
        *((DISCOVERER, topic) for topic in COMMITTED[DISCOVERER] if committed[DISCOVERER]),
        *((ESTIMATOR, topic) for topic in STORED),
    ]
    positions = stored | committed[INGESTER] | committed[DISCOVERER]
    async with _reader(settings) as consumer:
        partitions = [tp for of_topic in there.values() for tp in of_topic]
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        names = [settings.topic(topic.name) for topic in read]
        ids = await topic_ids(client_of(consumer), names)
    found = [
        Place(
            reader,
            topic.name,
            tp.partition,
            positions.get((reader, topic.name, tp.partition)),
            begins[tp],
            ends[tp],
            ids.get(tp.topic),
            known[databases.of(tp.partition)].get(topic.name) if reader == ESTIMATOR else None,
        )
        for reader, topic in wanted
        for tp in there[topic.name]
        if reader != ESTIMATOR or databases.of(tp.partition) not in away
    ]
    return found, away


async def settle(settings: Settings, chosen: Sequence[Place], at: At) -> None:
    """Let consumers go on at their logs' start or end, and take the topics there are for theirs.

    A worker that is started meanwhile does no harm: its next commit finds that its positions were
    moved, and fails.

    Raises:
        StillRunning: workers of theirs run.
        KafkaError: the broker cannot be asked.
        psycopg.Error: the database cannot be written.
    """
    for reader in {place.consumer for place in chosen}:
        await _require_stopped(settings, reader)
    _store([place for place in chosen if place.consumer == ESTIMATOR], settings, at)
    for reader in COMMITTED:
        offsets = {
            TopicPartition(settings.topic(place.topic), place.partition): OffsetAndMetadata(
                place.settled_at(at), ""
            )
            for place in chosen
            if place.consumer == reader
        }
        if offsets:
            await _commit(settings, reader, offsets)


def _require_topics(settings: Settings, there: Mapping[str, Sequence[TopicPartition]]) -> None:
    """A topic that is gone has no partition of which anything could be told."""
    needed = (*STORED, *COMMITTED[INGESTER])  # discoverers are optional
    if gone := [settings.topic(topic.name) for topic in needed if not there[topic.name]]:
        raise UserError(
            f"the broker lacks {', '.join(gone)}: run `freshet topics ensure`, and look again; "
            "what was read of them will not be there"
        )


def _require_partitions(
    settings: Settings,
    there: Mapping[str, Sequence[TopicPartition]],
    stored: Iterable[tuple[str, str, int]],
    database: Database,
) -> None:
    """The same of partitions: where topics were made anew by settings of before a growth, of which
    a database tells."""
    for topic in STORED:
        count = len(there[topic.name])
        if any(of == topic.name and partition >= count for _, of, partition in stored):
            shards = fetch_layout(database.url).shards
            raise UserError(
                f"{settings.topic(topic.name)} has {count} partitions, and others were read: run "
                f"`freshet shards grow {shards}`, which adds what topics lack, and look again"
            )


class _Stored(NamedTuple):
    """What databases have."""

    positions: dict[tuple[str, str, int], int]
    topics: dict[Database, dict[str, str]]
    """Those that the positions of each are about."""
    away: dict[Database, str]


def _stored(settings: Settings) -> _Stored:
    def ask(database: Database) -> tuple[dict[tuple[str, str, int], int], dict[str, str]]:
        with connect(database.url, "cli") as connection:
            rows = connection.execute(
                "SELECT consumer, topic, partition, next_offset FROM stream_positions"
            ).fetchall()
            positions = {(reader, topic, part): at for reader, topic, part, at in rows}
            return positions, read_topics(connection)

    said, away = ask_all(databases_of(settings), "cli", ask)
    positions: dict[tuple[str, str, int], int] = {}
    for own, _ in said.values():
        positions |= own
    return _Stored(positions, {one: topics for one, (_, topics) in said.items()}, away)


def _store(chosen: Iterable[Place], settings: Settings, at: At) -> None:
    databases = databases_of(settings)
    places: dict[Database, list[Place]] = {}
    for place in chosen:
        places.setdefault(databases.of(place.partition), []).append(place)
    for database, its in places.items():
        with connect(database.url, "cli") as connection:
            for place in its:
                _set_position(connection, place, place.settled_at(at))
                if place.topic_id is not None:
                    set_topic(connection, place.topic, place.topic_id)


def _set_position(connection: psycopg.Connection, place: Place, offset: int) -> None:
    connection.execute(
        "INSERT INTO stream_positions (consumer, topic, partition, next_offset) "
        "VALUES (%s, %s, %s, %s) ON CONFLICT (consumer, topic, partition) "
        "DO UPDATE SET next_offset = excluded.next_offset",
        (place.consumer, place.topic, place.partition, offset),
    )


@asynccontextmanager
async def _reader(settings: Settings) -> Any:
    consumer: AIOKafkaConsumer = make_consumer(settings)
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


def _attempts() -> Attempts:
    return until_it_passes(None, may_pass, patience_seconds=PATIENCE_SECONDS)


async def _committed(
    settings: Settings, reader: str, there: Mapping[str, list[TopicPartition]]
) -> dict[tuple[str, str, int], int]:
    group = settings.topic_prefix + GROUPS[reader]
    partitions = [tp for topic in COMMITTED[reader] for tp in there[topic.name]]
    names = {settings.topic(topic.name): topic.name for topic in COMMITTED[reader]}
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    async for attempt in _attempts():
        with attempt:
            async with administering(settings) as admin:
                found = await admin.list_consumer_group_offsets(group, partitions=partitions)
    return {
        (reader, names[tp.topic], tp.partition): meta.offset
        for tp, meta in found.items()
        if meta.offset >= 0
    }


async def _require_stopped(settings: Settings, reader: str) -> None:
    group = settings.topic_prefix + GROUPS[reader]
    answers: list[Any] = []
    async for attempt in _attempts():
        with attempt:
            async with administering(settings) as admin:
                answers = await admin.describe_consumer_groups([group])
    for answer in answers:
        for described in answer.groups:
            state, members = described[2], described[5]
            if state not in _NOBODY or members:
                raise StillRunning(
                    f"{len(members)} {reader}s are members of group {group}: stop them all, and "
                    f"wait until the broker has noticed, "
                    f"{settings.kafka_session_timeout_seconds:g} s"
                )


async def _commit(
    settings: Settings, reader: str, offsets: dict[TopicPartition, OffsetAndMetadata]
) -> None:
    # Not `make_consumer`: a static member would have to join the group first.
    consumer = AIOKafkaConsumer(
        group_id=settings.topic_prefix + GROUPS[reader],
        enable_auto_commit=False,
        **client_options(settings),
    )
    try:
        await consumer.start()
        consumer.assign(list(offsets))
        await consumer.commit(offsets)
    finally:
        await consumer.stop()
