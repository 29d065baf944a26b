"""Finding the messages that make a batch fail: piece by piece, until they fail by themselves."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from aiokafka import ConsumerRecord

from services.estimator import metrics
from services.estimator.decoding import Refused
from services.estimator.ordering import Labelled, ShardRecords, by_topic, in_order
from services.estimator.persistence import Unacceptable
from shared.runtime.isolation import Pieces, reason_of

log = structlog.get_logger(__name__)

Settle = Callable[[ShardRecords, Refused | None], Awaitable[None]]
"""Makes records durable, or says that they are `Unacceptable`; or sets the only one aside."""


async def isolate(records: ShardRecords, settle: Settle, stopping: asyncio.Event) -> int:
    """Do a batch that failed piece by piece, and set aside what fails by itself.

    Args:
        records: of the batch.
        settle: does a piece.
        stopping: ends the search.

    Returns:
        how many records were set aside.

    Raises:
        Unacceptable: stopped in the middle.
    """
    return sum(
        [
            await _isolate_in_shard(shard, records[shard], settle, stopping)
            for shard in sorted(records)
        ]
    )


async def _isolate_in_shard(
    shard: int, topics: dict[str, list[ConsumerRecord]], settle: Settle, stopping: asyncio.Event
) -> int:
    found = 0
    pieces = Pieces(in_order(topics))
    for piece in pieces:
        try:
            await settle({shard: by_topic(piece)}, None)
        except Unacceptable as error:
            if stopping.is_set():
                raise
            if not pieces.split(piece):
                found += 1
                await settle({shard: by_topic([piece[0]])}, _refused(piece[0], error))
    return found


def _refused(found: Labelled, error: Unacceptable) -> Refused:
    record, reason = found[1], reason_of(error.__cause__ or error)
    metrics.POISON.inc()
    log.error(
        "a message always fails and is set aside",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        reason=reason,
    )
    return Refused(record, reason)
