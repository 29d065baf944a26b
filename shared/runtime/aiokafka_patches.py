"""All that reaches behind aiokafka's public face, in one place.

aiokafka tells nobody of its heartbeats, lets nobody hold a producer back, has one time-out for two
matters, asks a group once for each way of sharing that it offers, and unpacks whatever comes. What
is used and replaced here may change with any of its releases, so pyproject.toml keeps it below the
next one, and `tests/contract/test_aiokafka_patches.py` holds each private part to the form that
this was written for: look at what has changed before you raise the bound.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import cramjam
import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer import fetcher
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch

from shared.runtime.batch_unpacking import gzip_unpacked, unpacker_of

ASK_SECONDS: Final = 0.1
"""Between two questions whether what is held back may go."""

PIECE_RECORDS: Final = 1_000
"""Are unpacked at once: of a batch that is full of empty ones there may be millions."""

log = structlog.get_logger(__name__)


class GroupMember:
    """A started consumer as the member of a group that it is."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._coordinator: Any = consumer._coordinator  # noqa: SLF001

    @property
    def generation(self) -> int:
        """Number of the group's decision that gave us our partitions; -1: it has given none."""
        return int(self._coordinator.generation)

    def watch_heartbeats(self, began: Callable[[], float], heard: Callable[[float], None]) -> None:
        """Be told of each heartbeat after which the broker knows us as a member.

        Args:
            began: asked for the time just before a heartbeat is sent.
            heard: told that time once the heartbeat, and the question behind it, are answered.
        """
        coordinator = self._coordinator
        beat = coordinator._do_heartbeat  # noqa: SLF001

        async def noted() -> bool:
            sent_at = began()
            answered: bool = await beat()
            if answered and await self._is_known():
                heard(sent_at)
            return answered

        coordinator._do_heartbeat = noted  # noqa: SLF001

    def offer(self, other: AbstractPartitionAssignor) -> None:
        """Offer the group one more way of sharing, for members that know only that one.

        aiokafka can be given several itself, but then asks the group anew for each of them, so that
        it decides twice: to a member it looks as if others had had its partitions in between.

        Args:
            other: liked less than those that the consumer was made with.
        """
        coordinator = self._coordinator
        send, look_up = coordinator._send_req, coordinator._lookup_assignor  # noqa: SLF001

        async def offering(request: Any) -> Any:
            if isinstance(request, JoinGroupRequest):
                offered = request._group_protocols  # noqa: SLF001
                if other.name not in [name for name, _ in offered]:
                    topics = coordinator._subscription.topics  # noqa: SLF001
                    offered.append((other.name, other.metadata(topics).encode()))
            return await send(request)

        coordinator._send_req = offering  # noqa: SLF001
        coordinator._lookup_assignor = (  # noqa: SLF001
            lambda name: other if name == other.name else look_up(name)
        )

    def rejoin(self) -> None:
        """Join again; the group shares anew if we lead it."""
        self._coordinator.request_rejoin()

    async def _is_known(self) -> bool:
        """Whether the group, at rest in our generation, has us as a member.

        Asked of a group at rest, this changes nothing; and heartbeats end before a member joins
        anew, so it is never asked while our generation is still being decided.
        """
        coordinator = self._coordinator
        question = SyncGroupRequest(
            coordinator.group_id,
            coordinator.generation,
            coordinator.member_id,
            coordinator._group_instance_id,  # noqa: SLF001
            [],
        )
        try:
            answer = await coordinator._send_req(question)  # noqa: SLF001
        except KafkaError:
            return False
        return bool(answer.error_code == 0)


def give_up_requests_after(producer: AIOKafkaProducer, seconds: float) -> None:
    """Let a producer that is not started yet ask a silent broker again, on a new connection, after
    so long. How long messages may wait for a broker is another matter, and stays as it is."""
    client: Any = producer.client
    client._request_timeout_ms = int(1000 * seconds)  # noqa: SLF001 - one option sets both


def hold_back(producer: AIOKafkaProducer, may_send: Callable[[], bool]) -> None:
    """Let a started producer keep what it has while it may not send.

    It is asked each time that something is about to leave, retries too.
    """
    accumulator: Any = producer._message_accumulator  # noqa: SLF001 - there is no public hook
    drain = accumulator.drain_by_nodes

    def drain_if_allowed(ignore_nodes: Any, muted_partitions: Any = frozenset()) -> Any:
        if may_send():
            return drain(ignore_nodes=ignore_nodes, muted_partitions=muted_partitions)
        nothing = drain(ignore_nodes=_EveryNode(), muted_partitions=muted_partitions)
        asyncio.get_running_loop().call_later(ASK_SECONDS, _end, accumulator.waiter())
        return nothing

    accumulator.drain_by_nodes = drain_if_allowed


def numbers_of(producer: AIOKafkaProducer) -> Any:
    """By what a producer counts its records; None: it does not."""
    return producer._txn_manager  # noqa: SLF001


def counts_of(numbers: Any) -> Any:
    """How many records of each partition are counted; it writes through."""
    return numbers._sequence_numbers  # noqa: SLF001


def sender_of(producer: AIOKafkaProducer) -> Any:
    """What sends a producer's batches, and sends again what is not taken."""
    return producer._sender  # noqa: SLF001


def follow_sending(producer: AIOKafkaProducer, sent: Callable[[Mapping[Any, Any]], None]) -> None:
    """Tell of batches that a broker has been sent, before any partition is sent more."""
    sender = sender_of(producer)
    send = sender._send_produce_req  # noqa: SLF001

    async def send_telling(node: int, batches: Any) -> None:
        await send(node, batches)
        sent(batches)

    sender._send_produce_req = send_telling  # noqa: SLF001


def client_of(consumer: AIOKafkaConsumer) -> AIOKafkaClient:
    """The connections of a started consumer, for requests that it has no method for."""
    client: AIOKafkaClient = consumer._client  # noqa: SLF001
    return client


def read_ahead(consumer: AIOKafkaConsumer, partition_bytes: int) -> None:
    """Let a started consumer ask for less, from now on, as it has got more partitions.

    Args:
        consumer: whose options were made for fewer partitions.
        partition_bytes: at most of a partition in one answer; for half of it, or less if that was
            said before, no broker waits.
    """
    fetcher: Any = consumer._fetcher  # noqa: SLF001
    fetcher._max_partition_fetch_bytes = partition_bytes  # noqa: SLF001
    fetcher._fetch_min_bytes = min(fetcher._fetch_min_bytes, partition_bytes // 2)  # noqa: SLF001


def versions_of(connection: AIOKafkaConnection) -> dict[int, tuple[int, int]]:
    """Of each request that a broker knows, the first and the last version: it tells nobody."""
    return dict(connection._versions)  # noqa: SLF001


class _EveryNode(Collection[int]):
    """All brokers that there may be."""

    def __contains__(self, node: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1


def _end(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def unpack_within_limits() -> None:
    """Let all consumers of this process unpack a batch to so much and no further.

    One that holds more, or that cannot be read, as the name of a header is no text, is handed out
    as one record, at its last offset, whose value says so and is no message, after those that could
    be read: it goes where bad messages go, and readers pass it. aiokafka itself unpacks it to its
    end, or raises each time that the partition is read.
    """
    fetcher.PartitionRecords = _PartitionRecords
    fetcher.FetchResult.getall = _all_of
    for kind in (DefaultRecordBatch, LegacyRecordBatch):  # in Python, or compiled
        vars(sys.modules[kind.__module__]).update(
            gzip_decode=gzip_unpacked,
            lz4_decode=unpacker_of(cramjam.lz4.decompress_into),
            zstd_decode=unpacker_of(cramjam.zstd.decompress_into),
        )


@dataclass(frozen=True, slots=True)
class _NotRead:
    """In place of the records of a batch."""

    offset: int
    timestamp: int
    timestamp_type: int
    value: bytes
    key: bytes | None = None
    checksum: None = None
    headers: tuple[()] = ()


class _Record(msgspec.Struct, gc=False):
    """As aiokafka's `ConsumerRecord`, made in half the time, and nobody looks through thousands of
    them for garbage. (It has bytes, numbers and texts, so it is in no circle.)"""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: tuple[tuple[str, bytes], ...]


class _Piece(NamedTuple):
    """Some records of a batch, in order."""

    offset: int
    """Of the last one."""
    records: list[Any]


class _Batch:
    """A batch whose records are handed out in pieces, and are no surprise: brokers look only at a
    part of what they take."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[_Piece]:
        """To aiokafka a piece is one record; `_PartitionRecords` makes many of it."""
        records: Iterator[Any] | None = None
        is_read = False
        while not is_read:
            piece: list[Any] = []
            try:
                records = islice(self._batch, None) if records is None else records
                piece.extend(islice(records, PIECE_RECORDS))  # what came before an error stays
                is_read = len(piece) < PIECE_RECORDS
            except Exception as error:  # of any codec, and of what is in a record
                piece.append(self._not_read(error))
                is_read = True
            if piece:
                yield _Piece(piece[-1].offset, piece)

    def _not_read(self, error: Exception) -> _NotRead:
        batch = self._batch
        last = batch.next_offset - 1
        count = getattr(batch, "last_offset_delta", 0) + 1
        reason = f"not read: a batch of {count} records that unpacks to {error!r}"
        log.error("a batch cannot be read, and is passed", offset=last, reason=reason)
        at, kind = getattr(batch, "max_timestamp", -1), getattr(batch, "timestamp_type", 0)
        return _NotRead(last, at, kind, reason.encode())


class _Batches:
    """The batches of an answer."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.has_next = batches.has_next

    def next_batch(self) -> Any:
        """See aiokafka's `MemoryRecords`."""
        batch = self._batches.next_batch()
        # Brokers themselves write what ends a transaction.
        return batch if batch.is_control_batch else _Batch(batch)


class _PartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]  # aiokafka is untyped
    """The records of an answer: unpacked a piece at a time, which takes half of what one by one
    does, and handed out in order."""

    def __init__(self, tp: TopicPartition, records: Any, *more: Any, **named: Any) -> None:
        self._unpacked: list[ConsumerRecord] = []
        self._taken = 0
        super().__init__(tp, _Batches(records), *more, **named)

    @property
    def next_fetch_offset(self) -> int:
        """Of the first record that was not handed out, or that is not here."""
        if self._taken < len(self._unpacked):
            return int(self._unpacked[self._taken].offset)
        return self._next_offset

    @next_fetch_offset.setter
    def next_fetch_offset(self, offset: int) -> None:
        self._next_offset = offset

    def __next__(self) -> ConsumerRecord:
        for record in self.take(1):
            return record
        raise StopIteration

    def take(self, most: int | None) -> list[ConsumerRecord]:
        """So many records, or all; fewer only if there are no more."""
        taken: list[ConsumerRecord] = []
        while most is None or len(taken) < most:
            if self._taken == len(self._unpacked):
                piece = next(self._records_iterator, None)
                if piece is None:
                    break
                self._unpacked, self._taken = piece, 0
            end = None if most is None else self._taken + most - len(taken)
            part = self._unpacked[self._taken : end]
            self._taken += len(part)
            taken += part
        return taken

    def _consumer_record(self, tp: TopicPartition, piece: _Piece) -> list[ConsumerRecord]:
        """All records of a piece that were asked for; a batch may begin before them."""
        (topic, partition), first = tp, self.next_fetch_offset
        if self._key_deserializer or self._value_deserializer:
            made = super()._consumer_record
            return [made(tp, record) for record in piece.records if record.offset >= first]
        return [
            _Record(
                topic,
                partition,
                offset,
                record.timestamp,
                record.timestamp_type,
                key := record.key,
                value := record.value,
                record.checksum,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
                tuple(headers) if (headers := record.headers) else (),
            )
            for record in piece.records
            if (offset := record.offset) >= first
        ]


_all_one_by_one = fetcher.FetchResult.getall


def _all_of(self: Any, max_records: int | None = None) -> list[ConsumerRecord]:
    """What a consumer hands out of an answer: `FetchResult.getall`, without a step a record."""
    records = self._partition_records
    if not isinstance(records, _PartitionRecords):
        return list(_all_one_by_one(self, max_records))
    if not self.check_assignment(self._topic_partition):
        return []
    taken = records.take(max_records)
    self._update_position()
    if max_records is None or len(taken) < max_records:
        self._partition_records = None
    return taken
