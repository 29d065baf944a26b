"""More partitions for the topics of the shards: Kafka's part of a growth."""

from typing import Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import InvalidPartitionsError, LeaderNotAvailableError

from shared.contracts.topics import TOPICS, Topic
from shared.runtime.kafka import (
    START_PATIENCE_SECONDS,
    administering,
    may_pass,
    partition_counts,
    wait_for_leaders,
)
from shared.runtime.partition_counts import TopicMismatch
from shared.runtime.retrying import until_it_passes
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

OF_SHARDS: Final[tuple[Topic, ...]] = tuple(t for t in TOPICS if t.partitioning == "shards")
"""All topics that have a partition a shard."""


async def require_partitions(settings: Settings, shards: int) -> None:
    """Make sure that the topics of the shards have, or can get, so many partitions; nothing is
    changed. To be asked before anything is that cannot be taken back.

    Raises:
        TopicMismatch, AccessRefused, KafkaError: as by `add_partitions`.
    """
    async for attempt in until_it_passes(None, may_pass, patience_seconds=START_PATIENCE_SECONDS):
        with attempt:
            async with administering(settings) as admin:
                await _lacking(admin, settings, shards)


async def add_partitions(settings: Settings, shards: int) -> list[str]:
    """Give every topic of the shards so many partitions; those that have them are left alone.

    What is in the topics stays where it is. Waits for a broker that is away, and until each
    partition has a leader. All topics go into one request, but a broker takes each by itself: who
    is interrupted calls again.

    Args:
        settings: where the brokers are.
        shards: how many there will be, a multiple of how many there are.

    Returns:
        names, without prefix, of the topics that got partitions.

    Raises:
        TopicMismatch: a topic has more partitions, or a number that `shards` is no multiple of, or
            is not there at all: nothing was changed.
        AccessRefused: a password or certificate is wrong.
        KafkaError: the broker cannot be reached, or refuses.
    """
    changed: set[str] = set()
    async for attempt in until_it_passes(None, may_pass, patience_seconds=START_PATIENCE_SECONDS):
        with attempt:
            async with administering(settings) as admin:
                await _add_partitions(admin, settings, shards, changed)
    return [topic.name for topic in OF_SHARDS if topic.name in changed]


async def _add_partitions(
    admin: AIOKafkaAdminClient, settings: Settings, shards: int, changed: set[str]
) -> None:
    found, wanted = await _lacking(admin, settings, shards)
    if wanted:
        # Noted before they are asked for: if the answer is lost, nobody knows what was done.
        changed.update(topic.name for topic in OF_SHARDS if settings.topic(topic.name) in wanted)
        await _create(admin, wanted, validate_only=False)
        log.info("partitions added", shards=shards, topics=sorted(wanted))
    await wait_for_leaders(admin, found, shards)


async def _lacking(
    admin: AIOKafkaAdminClient, settings: Settings, shards: int
) -> tuple[dict[str, int], dict[str, NewPartitions]]:
    """How many partitions each topic has, and which it lacks: the broker says that it would make
    them."""
    found = await partition_counts(admin, settings, OF_SHARDS)
    for name, count in found.items():
        _check(name, count, shards)
    wanted = {name: NewPartitions(shards) for name, count in found.items() if count < shards}
    if wanted:
        await _create(admin, wanted, validate_only=True)
    return found, wanted


async def _create(
    admin: AIOKafkaAdminClient, wanted: dict[str, NewPartitions], *, validate_only: bool
) -> None:
    try:
        await admin.create_partitions(wanted, validate_only=validate_only)
    except InvalidPartitionsError as error:
        # Somebody else has just added some, and brokers tell of them a moment later.
        raise LeaderNotAvailableError(str(error)) from error


def _check(name: str, count: int, shards: int) -> None:
    if not count:
        raise TopicMismatch(f"there is no topic {name}: `freshet topics ensure` makes it")
    if count > shards or shards % count:
        raise TopicMismatch(
            f"topic {name} has {count} partitions and cannot get {shards}: the number can only "
            "grow, to a multiple of what it is, else hosts would go to shards that know nothing "
            "of them"
        )
