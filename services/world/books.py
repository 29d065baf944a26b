"""Reads the topics into the ledger, past all consumer groups; requests go to the fleet, too."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
from aiokafka import ConsumerRecord, TopicPartition

from services.world.fleet import Place
from services.world.ledger import Ledger
from shared.contracts.codec import decode_many
from shared.contracts.messages import (
    Bandwidth,
    CrawlOutcome,
    CrawlRequest,
    Multipliers,
    PageSignal,
    Signal,
)
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    MULTIPLIERS,
    PAGE_SIGNALS,
    SIGNALS,
)
from shared.runtime.dead_letters import Letter
from shared.runtime.kafka import gathering, make_consumer, partitions_of
from shared.runtime.settings import Settings

Records = Sequence[ConsumerRecord]
Message = TypeVar("Message", bound=msgspec.Struct)

OutcomesWritten = Callable[[int, Sequence[int], Sequence[float]], None]
"""Told the partition, and the offsets and times, of outcomes."""

Requested = Callable[[Sequence[CrawlRequest], Sequence[Place]], None]
"""Told of requests, and where they stand."""

GATHERED_SECONDS = 0.03
"""What the books come later, the crawlers come, too."""

TURN_SECONDS = 0.1
MAX_RECORDS = 20_000

_TOPICS = (
    # Requests before outcomes: in a batch that holds both, the ledger needs no early ones.
    CRAWL_REQUESTS,
    CRAWL_OUTCOMES,
    SIGNALS,
    PAGE_SIGNALS,
    BANDWIDTH,
    MULTIPLIERS,
    DEAD_LETTERS,
)


_OUTCOMES: Final = _TOPICS.index(CRAWL_OUTCOMES)


class BookKeeper:
    """Follows all that is written from its start on."""

    def __init__(
        self, settings: Settings, outcomes_written: OutcomesWritten, requested: Requested
    ) -> None:
        self.unreadable = 0
        """Records that do not decode: whoever reads them puts them to the dead letters."""
        self._settings = settings
        self._consumer = make_consumer(settings, **gathering(GATHERED_SECONDS))
        self._outcomes_written = outcomes_written
        self._requested = requested
        self._order = {settings.topic(t.name): rank for rank, t in enumerate(_TOPICS)}

    async def start(self) -> None:
        """Go to the end of every topic; what comes from now on is the run's."""
        await self._consumer.start()
        partitions = [
            TopicPartition(self._settings.topic(topic.name), number)
            for topic in _TOPICS
            for number in range(partitions_of(topic, self._settings))
        ]
        self._consumer.assign(partitions)
        ends = await self._consumer.end_offsets(partitions)
        for partition, offset in ends.items():
            self._consumer.seek(partition, offset)

    @property
    def ready(self) -> bool:
        """Whether everything that is written from now on is read."""
        return bool(self._consumer.assignment())

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def turn(self, ledger: Ledger) -> int:
        """Enter what has come; returns how many records that was."""
        fetched = await self._consumer.getmany(
            timeout_ms=int(1000 * TURN_SECONDS), max_records=MAX_RECORDS
        )
        by_topic: dict[int, list[ConsumerRecord]] = {}
        for partition, records in fetched.items():
            rank = self._order[partition.topic]
            if rank == _OUTCOMES:
                offsets = [record.offset for record in records]
                self._outcomes_written(partition.partition, offsets, _times(records))
            by_topic.setdefault(rank, []).extend(records)
        for rank in sorted(by_topic):
            self._enter(ledger, rank, by_topic[rank])
            await asyncio.sleep(0)
        return sum(map(len, by_topic.values()))

    def _enter(self, ledger: Ledger, rank: int, records: Records) -> None:
        topic = _TOPICS[rank]
        if topic is CRAWL_REQUESTS:
            requests, kept = self._read(CrawlRequest, records)
            if requests:
                self._requested(requests, [(r.partition, r.key or b"") for r in kept])
            ledger.take_requests(requests, _times(kept))
        elif topic is CRAWL_OUTCOMES:
            outcomes, kept = self._read(CrawlOutcome, records)
            ledger.take_outcomes(outcomes, _times(kept))
        elif topic is SIGNALS:
            signals, kept = self._read(Signal, records)
            ledger.take_signals(signals, _times(kept))
        elif topic is PAGE_SIGNALS:
            clean, kept = self._read(PageSignal, records)
            ledger.take_page_signals(clean, _times(kept))
        elif topic is BANDWIDTH:
            budgets, kept = self._read(Bandwidth, records)
            for budget, at in zip(budgets, _times(kept), strict=True):
                ledger.bandwidth(budget.crawls_per_second, at)
        elif topic is MULTIPLIERS:
            multipliers, kept = self._read(Multipliers, records)
            for message, at in zip(multipliers, _times(kept), strict=True):
                ledger.multiplier(message, at)
        else:
            for letter in filter(None, map(Letter.read, records)):
                ledger.dead_letter(letter.stage or "?", letter.topic or "?", letter.error or "?")

    def _read(self, kind: type[Message], records: Records) -> tuple[list[Message], Records]:
        """The messages, and the records that they came in; what cannot be read is left out."""
        messages, bad = decode_many(kind, [record.value for record in records])
        self.unreadable += len(bad)
        if bad:
            records = [record for index, record in enumerate(records) if index not in bad]
        return messages, records


def _times(records: Records) -> list[float]:
    return [record.timestamp / 1000.0 for record in records]
