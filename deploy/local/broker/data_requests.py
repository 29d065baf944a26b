"""Produce, Fetch and ListOffsets: the requests that move data."""

import asyncio
from typing import Any, NamedTuple

from deploy.local.broker import batch as batches
from deploy.local.broker.fetch_codec import (
    SESSIONLESS,
    Fetch,
    Fetched,
    Wanted,
    decode_fetch,
    encode_fetched,
)
from deploy.local.broker.log import PartitionLog, Waiter
from deploy.local.broker.protocol import ErrorCode, RequestError, RequestHeader
from deploy.local.broker.topics import Topics, now_ms

MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""Data in one fetch response at most: a larger one would keep other clients waiting."""
MAX_WAIT_MS = 30_000
"""Longest wait of a fetch, whatever the client asks for."""
LATEST, EARLIEST = -1, -2


class Target(NamedTuple):
    """A partition of a fetch request with its log, None if there is no such partition."""

    topic: str
    wanted: Wanted
    log: PartitionLog | None


class FetchState:
    """What a connection remembers between fetches."""

    def __init__(self) -> None:
        self.turn = 0
        """Where the next response starts to fill, so that no partition is always last."""
        self.told: dict[tuple[str, int], tuple[int, int, int]] = {}
        """What the last answer said: per partition the offset read at, end and start of the log."""


def produce(request: Any, version: int, topics: Topics) -> tuple[Any, ...] | None:
    """Store the batches of a produce request; None if the client wants no answer."""
    answers = []
    for name, partitions in request.topics or ():
        results = []
        for number, data in partitions or ():
            try:
                _check_produce(request)
                log = _existing(topics, name, number)
                stored = log.append(batches.split(data or b""), now_ms())
                result = (number, ErrorCode.NONE, *stored, log.start_offset)
            except batches.CorruptBatchError:
                result = (number, ErrorCode.CORRUPT_MESSAGE, -1, batches.NO_TIMESTAMP, -1)
            except RequestError as error:
                result = (number, _storage_code(error.code, version), -1, batches.NO_TIMESTAMP, -1)
            results.append(result if version >= 5 else result[:4])
        answers.append((name, results))
    return None if request.required_acks == 0 else (answers, 0)


def _existing(topics: Topics, name: str, number: int) -> PartitionLog:
    log = topics.partition(name, number)
    if log is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {name}-{number}")
    return log


def _check_produce(request: Any) -> None:
    if request.required_acks not in (-1, 0, 1):
        raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    if request.transactional_id is not None:
        raise RequestError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "the local broker has no transactions; use Apache Kafka for them",
        )


def _storage_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < 4:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code


async def fetch(
    header: RequestHeader, frame: bytes, topics: Topics, state: FetchState
) -> list[bytes]:
    """Answer a fetch as soon as enough data is there, or the client's wait is over."""
    request = decode_fetch(header, frame)
    targets = [
        Target(name, wanted, topics.partition(name, wanted.partition))
        for name, partitions in request.topics
        for wanted in partitions
    ]
    deadline = asyncio.get_running_loop().time() + min(request.max_wait_ms, MAX_WAIT_MS) / 1000
    is_late = False
    while True:
        found, size, failed = _read(request, targets, state)
        missing = max(request.min_bytes, 1) - size
        if failed or is_late or missing <= 0 or not targets:
            break
        is_late = not await _more_data(targets, missing, deadline)
        if any(t.log is not topics.partition(t.topic, t.wanted.partition) for t in targets):
            targets = [
                t._replace(log=topics.partition(t.topic, t.wanted.partition)) for t in targets
            ]
    sparse = request.session_epoch == SESSIONLESS and header.api_version >= 7
    answer = _by_topic(targets, found, state if sparse else None)
    return encode_fetched(header.api_version, answer)


def _read(
    request: Fetch, targets: list[Target], state: FetchState
) -> tuple[dict[int, Fetched], int, bool]:
    """Return what was read by index of the target, its size, and whether a partition failed."""
    found: dict[int, Fetched] = {}
    ready = [
        index
        for index, target in enumerate(targets)
        if target.log is None or target.wanted.offset != target.log.end_offset
    ]
    if not ready:
        return found, 0, False
    left = min(request.max_bytes, MAX_RESPONSE_BYTES)
    start = state.turn % len(ready)
    state.turn += 1
    size, failed = 0, False
    for index in ready[start:] + ready[:start]:
        fetched = _read_one(targets[index], left, at_least_one=size == 0)
        found[index] = fetched
        failed = failed or fetched.error is not ErrorCode.NONE
        size += len(fetched.data)
        left -= len(fetched.data)
    return found, size, failed


def _read_one(target: Target, left: int, *, at_least_one: bool) -> Fetched:
    number, offset, max_bytes = target.wanted
    log = target.log
    if log is None:
        return Fetched(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, b"")
    try:
        data = log.read(offset, max(min(max_bytes, left), 0), at_least_one=at_least_one)
    except RequestError as error:
        return Fetched(number, error.code, log.end_offset, log.start_offset, b"")
    except (OSError, batches.CorruptBatchError):
        return Fetched(number, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, b"")
    return Fetched(number, ErrorCode.NONE, log.end_offset, log.start_offset, data)


async def _more_data(targets: list[Target], missing: int, deadline: float) -> bool:
    """Wait until partitions have grown by so many bytes; False if the deadline came first."""
    loop = asyncio.get_running_loop()
    left = deadline - loop.time()
    if left <= 0:
        return False
    waiter = Waiter(missing)
    timer = loop.call_later(left, waiter.woken.cancel)
    logs = [target.log for target in targets if target.log is not None]
    for log in logs:
        log.waiters.add(waiter)
    try:
        await asyncio.wait((waiter.woken,))
    finally:
        timer.cancel()
        for log in logs:
            log.waiters.discard(waiter)
    return not waiter.woken.cancelled()


def _by_topic(
    targets: list[Target], found: dict[int, Fetched], state: FetchState | None
) -> list[tuple[str, list[Fetched]]]:
    """Group the results by topic.

    With a `state`, a partition without data is left out when the last answer said the same of it:
    decoding hundreds of empty partitions is what an idle consumer would spend its time on.
    """
    answer: dict[str, list[Fetched]] = {}
    told: dict[tuple[str, int], tuple[int, int, int]] = {}
    for index, (topic, wanted, log) in enumerate(targets):
        fetched = found.get(index)
        if fetched is None:
            end, start = (log.end_offset, log.start_offset) if log else (-1, -1)
            fetched = Fetched(wanted.partition, ErrorCode.NONE, end, start, b"")
        if state is not None and fetched.error is ErrorCode.NONE and not fetched.data:
            known = (wanted.offset, fetched.end_offset, fetched.start_offset)
            place = (topic, wanted.partition)
            told[place] = known
            if state.told.get(place) == known:
                continue
        answer.setdefault(topic, []).append(fetched)
    if state is not None:
        state.told = told
    return list(answer.items())


def list_offsets(request: Any, version: int, topics: Topics) -> tuple[Any, ...]:
    """Answer the offsets at which logs start, end, or have the first record since a time."""
    answers = [
        (
            name,
            [
                (number, *_offset_at(topics, name, number, when))
                for number, when in partitions or ()
            ],
        )
        for name, partitions in request.topics or ()
    ]
    return (answers,) if version < 2 else (0, answers)


def _offset_at(
    topics: Topics, name: str, number: int, timestamp: int
) -> tuple[ErrorCode, int, int]:
    """Return error, timestamp and offset, as the response has them."""
    log = topics.partition(name, number)
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, batches.NO_TIMESTAMP, -1
    if timestamp == LATEST:
        return ErrorCode.NONE, batches.NO_TIMESTAMP, log.end_offset
    if timestamp == EARLIEST:
        return ErrorCode.NONE, batches.NO_TIMESTAMP, log.start_offset
    try:
        record = log.first_record_since(timestamp)
    except (OSError, batches.CorruptBatchError):
        return ErrorCode.KAFKA_STORAGE_ERROR, batches.NO_TIMESTAMP, -1
    if record is None:
        return ErrorCode.NONE, batches.NO_TIMESTAMP, -1
    return ErrorCode.NONE, record.timestamp, record.offset
