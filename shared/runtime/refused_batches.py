"""What a producer that numbers its records does after a broker has refused some of them.

An idempotent producer counts its records by partition, and a broker takes them in unbroken order
only. aiokafka counts what was refused, as it was too large for the topic or a right was missing,
like what was stored: the broker then misses it, and refuses all that comes after it on the
partition for as long as the producer lives, long after the limit or the right was mended. And where
the count has come to its end, after 2^31 records, it goes on below nought, which no broker takes.
"""

from collections.abc import Mapping
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownProducerId,
)

from shared.runtime.aiokafka_patches import counts_of, follow_sending, numbers_of, sender_of
from shared.runtime.write_watch import WRITES

log = structlog.get_logger(__name__)

_NUMBERS: Final = 2**31
"""Kafka's counts begin anew behind the last of them."""

_LOST: Final = (
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownProducerId,
)
"""The broker knows another count, as a leader has lost records: the producer begins as a new
one."""


def go_on_after_refusals(producer: AIOKafkaProducer) -> None:
    """Let a producer that is not started yet send on what comes after refused records.

    Each topic that refuses is logged, once until it takes something or refuses it otherwise. What
    it refuses for now, and is sent again, is noted.
    """
    numbers = numbers_of(producer)
    if numbers is None or numbers.transactional_id is not None:
        return  # it does not count, or its transactions end with what is refused
    refusing: dict[str, str] = {}

    def notice(batches: Mapping[TopicPartition, Any]) -> None:
        for tp, batch in batches.items():
            if not batch.future.done():
                WRITES.note(tp, batch.future)
                continue
            if batch.future.cancelled():
                continue
            error = batch.future.exception()
            _tell(refusing, tp, batch, error)
            if error is None:
                continue
            # One that was sent before may have been stored, and nobody heard so. The broker would
            # take the next one that has its numbers for it, and store nothing.
            if isinstance(error, _LOST) or batch.retry_count > 1:
                _begin_anew(numbers)
            else:
                _count(numbers, tp, -batch.record_count)

    follow_sending(producer, notice)
    numbers.increment_sequence_number = lambda tp, count: _count(numbers, tp, count)


async def give_up_sending(producer: AIOKafkaProducer) -> None:
    """Let a producer that is being stopped end, though brokers do not take all that it has."""
    await sender_of(producer).close()


def _count(numbers: Any, tp: TopicPartition, records: int) -> None:
    counted = counts_of(numbers)
    counted[tp] = (counted[tp] + records) % _NUMBERS


def _begin_anew(numbers: Any) -> None:
    """Have the sender ask for a new number before it sends anything more.

    What is tried again keeps the old one, under which the broker may have it.
    """
    if numbers.has_pid():
        numbers.__init__(None, numbers.transaction_timeout_ms)


def _tell(
    refusing: dict[str, str], tp: TopicPartition, batch: Any, error: BaseException | None
) -> None:
    if error is None:
        refusing.pop(tp.topic, None)
    elif refusing.get(tp.topic) != type(error).__name__:
        refusing[tp.topic] = type(error).__name__
        log.error(
            "the broker refuses what is sent",
            topic=tp.topic,
            partition=tp.partition,
            records=batch.record_count,
            error=repr(error),
        )
