"""What the estimator publishes: learned parameters, and dead letters."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from psycopg.errors import LockNotAvailable

from services.estimator import metrics
from services.estimator.decoding import Misplaced, Refused
from services.estimator.learning import News
from shared.contracts.topics import HOST_PARAMETERS, PAGE_PARAMETERS
from shared.runtime.publisher import Publisher

STAGE = "estimator"

Announcements = Mapping[tuple[str, int], Sequence[tuple[bytes, bytes]]]
"""(Topic without prefix, shard) → keys and values."""


class Announcer(Protocol):
    """Where a batch's messages go."""

    async def publish(
        self, announcements: Announcements, refused: Sequence[Refused]
    ) -> dict[tuple[str, int], int]:
        """Publish, and wait until the broker has everything.

        Returns:
            (topic, shard) → offset after its last announcement.
        """
        ...

    async def pass_on(self, misplaced: Sequence[Misplaced]) -> None:
        """Publish records as they are where they belong, and wait until the broker has them."""
        ...


class KafkaAnnouncer:
    """Publishes on Kafka."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish(
        self, announcements: Announcements, refused: Sequence[Refused]
    ) -> dict[tuple[str, int], int]:
        """Publish, and wait until the broker has everything.

        Returns:
            (topic, shard) → offset after its last announcement.

        Raises:
            KafkaError: something could not be delivered.
        """
        letters = [
            await self._publisher.dead_letter(letter.record, STAGE, letter.reason)
            for letter in refused
        ]
        ends = await self._publisher.send_batches(announcements)
        # Not a flush: the lanes of several databases have one publisher, and each must hear of its
        # own.
        await asyncio.gather(*letters)
        return ends

    async def pass_on(self, misplaced: Sequence[Misplaced]) -> None:
        """Publish records as they are where they belong, and wait until the broker has them.

        Raises:
            KafkaError: something could not be delivered.
        """
        await asyncio.gather(
            *[await self._publisher.pass_on(part.record, part.shard) for part in misplaced]
        )


class Outbox:
    """What is durable and has yet to be announced.

    The messages of a commit come after it, and before the next one: so they say what the database
    has, and what a process does not come to say any more is what its last commit was about.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._waiting: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def add(self, shard: int, news: News) -> None:
        """Announce something next."""
        self._waiting.setdefault((HOST_PARAMETERS.name, shard), []).extend(news.hosts)
        self._waiting.setdefault((PAGE_PARAMETERS.name, shard), []).extend(news.pages)

    def forget(self, shards: Iterable[int]) -> None:
        """Shards are another's, or are loaded anew: who loads them finds what to announce."""
        gone = set(shards)
        self._waiting = {
            place: part for place, part in self._waiting.items() if place[1] not in gone
        }

    async def publish(self) -> None:
        """Announce all that waits.

        Raises:
            KafkaError: something could not be delivered; all of it still waits.
        """
        if not any(self._waiting.values()):
            return
        self._ends |= await self._announcer.publish(self._waiting, ())
        metrics.ANNOUNCED.inc(sum(map(len, self._waiting.values())))
        self._waiting = {}

    async def note_ends(self, note: Callable[[Mapping[tuple[str, int], int]], None]) -> None:
        """Have it noted, by a function that runs in a thread, how far the announcements reach."""
        if self._ends:
            # Where somebody holds them locked, there is another time.
            with contextlib.suppress(LockNotAvailable):
                await asyncio.to_thread(note, self._ends)
                self._ends = {}

    async def put_aside(
        self, refused: Sequence[Refused], misplaced: Sequence[Misplaced] = ()
    ) -> None:
        """Dead-letter records, and pass on those of other shards, before their positions are
        durable.

        Raises:
            KafkaError: something could not be delivered.
        """
        if refused:
            await self._announcer.publish({}, refused)
        if misplaced:
            await self._announcer.pass_on(misplaced)
            metrics.PASSED_ON.inc(len(misplaced))
