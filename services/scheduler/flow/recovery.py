"""How a shard that is loaded learns which of its pages are in flight: from the requests' topic."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from services.scheduler.state.events import Requests
from services.scheduler.state.restoring import restore_requests
from services.scheduler.state.shard import Shard
from services.scheduler.state.spent_tokens import SpentTokens, last_crawls
from shared.contracts.codec import BadMessage, decode
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlRequest
from shared.contracts.request_ids import microseconds
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.kafka import make_consumer
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL
from shared.units import SECONDS_PER_DAY

log = structlog.get_logger(__name__)

_CLOCK_SKEW_SECONDS: Final = 10.0
"""Brokers and schedulers may disagree about the time by so much."""

UNWRITTEN_SECONDS: Final = 30.0
"""What was not answered is in the database within so long after its deadline
(`unanswered_pages`)."""

_LOOKED_AT_BYTES: Final = 16 * 1024
"""Fetched of a partition where one request of a time is looked at; a batch of them comes whole."""

_AT_ONCE: Final = 5_000
"""Records that are decoded before the event loop gets its turn."""


def partitions_of(shards: Iterable[int], layout: Layout) -> set[int]:
    """Where requests of shards are that may be in flight: before a shard was split from another
    its pages were asked for there, and two growths may come one right after the other."""
    return {partition for shard in shards for partition in layout.ancestors_of(shard)}


def requests_of(shard: Shard, found: Mapping[int, list[CrawlRequest]]) -> list[CrawlRequest]:
    """A shard's requests among those of partitions, in the order they were made.

    Partitions that somebody has added to the topics are shards that the database does not know, and
    have no hosts.
    """
    layout, number = shard.layout, shard.number
    if len(layout.counts) == 1 and number < layout.shards:
        return found[number]
    return [
        request
        for partition in layout.ancestors_of(number)
        for request in found[partition]
        if layout.shard_of(request.host) == number
    ]


async def read_recent_requests(
    settings: Settings, numbers: set[int], loaded: asyncio.Event | None = None
) -> dict[int, list[CrawlRequest]]:
    """The requests on partitions that may still be in flight, or that nobody answered and the
    database does not know yet, in the order they were made.

    Args:
        settings: of the process.
        numbers: which partitions.
        loaded: what was asked for until this is set counts too; most of it is read meanwhile.

    Raises:
        KafkaError: the broker cannot be read.
    """
    partitions = [TopicPartition(settings.topic(CRAWL_REQUESTS.name), n) for n in numbers]
    waits = await _longest_waits(settings, partitions)
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        consumer.assign(partitions)
        for tp, offset in (await _offsets_ago(consumer, waits)).items():
            consumer.seek(tp, offset)
        found: dict[int, list[CrawlRequest]] = {number: [] for number in numbers}
        await _read_to_the_end(consumer, partitions, found)
        if loaded is not None:
            await loaded.wait()
            await _read_to_the_end(consumer, partitions, found)
        return found
    finally:
        await consumer.stop()


async def _read_to_the_end(
    consumer: AIOKafkaConsumer,
    partitions: list[TopicPartition],
    found: dict[int, list[CrawlRequest]],
) -> None:
    ends = await consumer.end_offsets(partitions)
    while await _is_behind(consumer, ends):
        fetched = await consumer.getmany(timeout_ms=200, max_records=_AT_ONCE)
        for tp, records in fetched.items():
            found[tp.partition] += _decoded(r.value for r in records)


async def _longest_waits(
    settings: Settings, partitions: list[TopicPartition]
) -> dict[TopicPartition, float]:
    """How long ago (wall seconds) a request may have been made that still counts, by partition.

    A request waits until its own deadline, and who made it may have had a longer time-out than is
    set now. So the last request is looked at that was made before our time-out, before twice as
    long, and so on: a time-out that was set for at least as long as it is gone is found.
    """
    longest = dict.fromkeys(partitions, _counts_for(settings.request_timeout_seconds))
    consumer = make_consumer(settings, max_partition_fetch_bytes=_LOOKED_AT_BYTES)
    await consumer.start()
    try:
        # Once: of an assignment that was changed just before, aiokafka's stop may wait for ever.
        consumer.assign(partitions)
        consumer.pause(*partitions)
        begins = await consumer.beginning_offsets(partitions)
        asked, seconds = dict(begins), _counts_for(settings.request_timeout_seconds)
        while asked and seconds < SECONDS_PER_DAY:
            offsets = await _offsets_ago(consumer, dict.fromkeys(asked, seconds))
            asked = {tp: offset for tp, offset in offsets.items() if offset > begins[tp]}
            for tp, record in (await _last_before(consumer, asked)).items():
                counts_for = _counts_for(_timeout_of(record) / settings.clock_speed)
                if counts_for > WALL.now() - record.timestamp / 1000:
                    longest[tp] = max(longest[tp], counts_for)
            seconds *= 2.0
    finally:
        await consumer.stop()
    return longest


def _counts_for(timeout_seconds: float) -> float:
    return min(timeout_seconds, SECONDS_PER_DAY) + UNWRITTEN_SECONDS + _CLOCK_SKEW_SECONDS


def _timeout_of(record: ConsumerRecord) -> float:
    """Clock seconds that were set when a request was made; 0: it cannot be read."""
    try:
        request = decode(CrawlRequest, record.value)
    except BadMessage:
        return 0.0
    return max(request.deadline_at - request.requested_at, 0.0)


async def _offsets_ago(
    consumer: AIOKafkaConsumer, seconds: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Where what was written within the last (wall) seconds begins; the end, if nothing was."""
    now = WALL.now()
    times = {tp: max(int((now - ago) * 1000), 0) for tp, ago in seconds.items()}
    ends: dict[TopicPartition, int] = await consumer.end_offsets(list(times))
    starts = await consumer.offsets_for_times(times)
    found = {tp: starts.get(tp) for tp in times}
    return {tp: ends[tp] if at is None else min(at.offset, ends[tp]) for tp, at in found.items()}


async def _last_before(
    consumer: AIOKafkaConsumer, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ConsumerRecord]:
    """The record right before an offset of each partition, where there is one."""
    for tp, offset in offsets.items():
        consumer.seek(tp, offset - 1)
    consumer.resume(*offsets)
    found: dict[TopicPartition, ConsumerRecord] = {}
    left = set(offsets)
    while left:
        fetched = await consumer.getmany(*left, timeout_ms=200)
        found |= {tp: rows[0] for tp, rows in fetched.items() if rows[0].offset < offsets[tp]}
        done = {tp for tp in left if await consumer.position(tp) >= offsets[tp]}
        consumer.pause(*done)  # At once: the others wait for what is fetched and not taken.
        left -= done
    return found


async def _is_behind(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    for tp, end in ends.items():
        if await consumer.position(tp) < end:
            return True
    return False


def _decoded(values: Iterable[bytes | None]) -> list[CrawlRequest]:
    requests = []
    for value in values:
        try:
            requests.append(decode(CrawlRequest, value))
        except BadMessage as error:
            log.warning("a crawl request could not be read and is left out", error=str(error))
    return requests


def restore(shard: Shard, requests: list[CrawlRequest]) -> int:
    """Mark the pages of recent requests as in flight, and take their hosts' tokens.

    A request whose deadline has passed counts as unanswered.

    Returns:
        how many are not answered yet.
    """
    # In the order in which they come first; each once.
    numbers = {name: shard.hosts.intern(name) for name in dict.fromkeys(r.host for r in requests)}
    hosts = np.array([numbers[request.host] for request in requests], np.int64)
    requested_at = np.array([request.requested_at for request in requests], np.float64)
    pages = shard.pages[: shard.used]
    last = last_crawls(pages, shard.attempts.rows, len(shard.hosts))
    shard.spent = SpentTokens(shard.hosts, last, hosts, requested_at, shard.rules.picking.speed)
    return restore_requests(
        shard,
        Requests(
            np.array([request.page_id for request in requests], np.int64),
            hosts,
            microseconds(requested_at),
            np.array([request.deadline_at for request in requests], np.float64),
        ),
    )


def settle_tokens(shard: Shard) -> None:
    """The shard has caught up: the limits of its hosts are read (see `SpentTokens`)."""
    if shard.spent is not None:
        for host in shard.spent.spend_anew().tolist():
            shard.selector.touch_host(host)
        shard.spent = None
