"""Partitions that no broker leads: whoever needs one of them waits for it, and nobody else does.

Brokers that are away take the partitions with them of which they have the only copies. A client
that asks where such a partition ends, or begins, gets no answer, not even for the others that it
asked for; so those are told apart before anything is asked.
"""

import asyncio
import contextlib
import time
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from shared.runtime.aiokafka_patches import client_of
from shared.runtime.topic_metadata import leaderless

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""Most partitions get another leader within this; to load one anew takes longer."""

AGAIN_SECONDS: Final = 0.25

ANSWER_SECONDS: Final = 2.0
"""A broker that takes longer says nothing."""

QUESTIONS: Final = 3
"""Whoever has got no answer so often takes it that brokers are away, and not leaders."""


class Leaders:
    """Which partitions of some topics are led by a broker, as their reader's group is told."""

    def __init__(self, consumer: AIOKafkaConsumer, topics: Collection[str]) -> None:
        """Make it.

        Args:
            consumer: whose connections are used.
            topics: on the broker; where they are read by shards, partition p of each is needed for
                shard p.
        """
        self._consumer = consumer
        self._topics = topics
        self.trouble: str | None = None
        """Which have none, as far as is known; None: all have one."""

    async def lacking(self, partitions: AbstractSet[int], patience: float = 0.0) -> set[int]:
        """Those of partitions of which a topic has no leader.

        Args:
            partitions: numbers.
            patience: as for `lacking_of`.
        """
        needed = {TopicPartition(name, number) for name in self._topics for number in partitions}
        return {tp.partition for tp in await self.lacking_of(needed, patience)}

    async def lacking_of(
        self, partitions: AbstractSet[TopicPartition], patience: float = 0.0
    ) -> set[TopicPartition]:
        """Those of partitions that have no leader.

        Where no broker says so, all are taken to have one: who uses them waits, as for a broker
        that is away.

        Args:
            partitions: of the topics.
            patience: for so many seconds others are asked for again.
        """
        until = time.monotonic() + patience
        while True:
            found = await self._asked() & partitions
            if not found or time.monotonic() >= until:
                break
            await asyncio.sleep(AGAIN_SECONDS)
        self._note(found)
        return found

    def _note(self, found: set[TopicPartition]) -> None:
        self.trouble = None
        if found:
            lacking: dict[str, list[int]] = {}
            for tp in sorted(found):
                lacking.setdefault(tp.topic, []).append(tp.partition)
            said = ", ".join(f"{name} {numbers}" for name, numbers in lacking.items())
            self.trouble = f"no broker leads partitions of {said}: what needs them waits for one"
            log.warning("partitions have no leader", partitions=lacking)

    async def _asked(self) -> set[TopicPartition]:
        # Any broker is asked, which may be the one that is away.
        for _ in range(QUESTIONS):
            with contextlib.suppress(KafkaError, TimeoutError):
                question = leaderless(client_of(self._consumer), self._topics)
                names = await asyncio.wait_for(question, ANSWER_SECONDS)
                return {TopicPartition(n, number) for n in names for number in names[n]}
        return set()
