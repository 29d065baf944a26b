"""Reading `crawl-requests` as a member of a consumer group, and committing what is answered."""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog
from aiokafka import ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from services.frontier.book import Book
from shared.contracts.codec import BadMessage, decode
from shared.contracts.messages import CrawlRequest
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.clock import Clock
from shared.runtime.kafka import make_consumer
from shared.runtime.polling import Polling
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

TURN_SECONDS: Final = 1.0
"""Between two commits, and two looks for requests that are late."""

COMMIT_SECONDS: Final = 2.0
FULL_SECONDS: Final = 0.05
"""So often a reader without room looks whether there is some now."""

READ_MS: Final = 100
MOST_AT_ONCE: Final = 2_000


class RequestReader(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Fills the book, and says to the broker up to where it is done."""

    def __init__(self, settings: Settings, book: Book, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._topic = settings.topic(CRAWL_REQUESTS.name)
        self._consumer = make_consumer(settings, settings.frontier_group)
        self._polling = Polling(self._consumer)
        self._is_started = False
        self.progressed_at = time.monotonic()
        """Wall time of the last turn of the loop, for the watchdog."""

    async def start(self) -> None:
        """Connect and join the group."""
        await self._consumer.start()
        self._is_started = True
        self._consumer.subscribe([self._topic], listener=self)

    async def stop(self) -> None:
        """Commit what was answered, and disconnect."""
        if self._is_started:
            self._is_started = False
            await self._commit()
        await self._consumer.stop()

    async def run(self, stopping: asyncio.Event) -> None:
        """Read until `stopping` is set."""
        await self._polling.beside(lambda: self._read(stopping), self._turn)

    async def _read(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.progressed_at = time.monotonic()
            self._polling.check()
            room = min(self._book.room, MOST_AT_ONCE)
            if not room:
                await asyncio.sleep(FULL_SECONDS)
                continue
            fetched = await self._consumer.getmany(timeout_ms=READ_MS, max_records=room)
            for records in fetched.values():
                for record in records:
                    self._note(record)

    def _note(self, record: ConsumerRecord) -> None:
        try:
            request = decode(CrawlRequest, record.value)
        except BadMessage as error:
            log.warning("a record is no request", offset=record.offset, reason=str(error))
            self._book.pass_over(record.partition, record.offset)
            return
        self._book.begin(request, record.partition, record.offset, self._clock.now())

    async def _turn(self) -> None:
        while True:
            await asyncio.sleep(TURN_SECONDS)
            self._book.turn(self._clock.now())
            await self._commit()

    async def _commit(self) -> None:
        """Commit what is not committed yet; what cannot be is tried again at the next turn."""
        positions = self._book.positions.to_commit()
        if not positions:
            return
        offsets = {TopicPartition(self._topic, number): at for number, at in positions.items()}
        try:
            await asyncio.wait_for(self._consumer.commit(offsets), COMMIT_SECONDS)
        except (KafkaError, TimeoutError) as error:
            # A partition that is another's now is read by it, from where we were.
            log.info("positions are not committed", reason=repr(error))
        else:
            self._book.positions.committed(positions)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        """The group begins to share its partitions out anew."""
        await self._commit()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """It has decided; all is read from what was committed."""
        partitions = {tp.partition for tp in assigned}
        self._book.share(partitions)
        log.info("partitions assigned", partitions=len(partitions))
