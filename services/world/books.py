"""Reads the topics into the ledger, past all consumer groups."""

import asyncio
from collections.abc import Callable

from aiokafka import ConsumerRecord, TopicPartition

from services.world.ledger import Ledger
from shared.contracts.codec import BadMessage, decode
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
from shared.runtime.kafka import make_consumer, partitions_of
from shared.runtime.settings import Settings

OutcomeWritten = Callable[[int, int, float], None]
"""Told partition, offset and time of every outcome."""

TURN_SECONDS = 0.05
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


class BookKeeper:
    """Follows all that is written from its start on."""

    def __init__(self, settings: Settings, outcome_written: OutcomeWritten) -> None:
        self.unreadable = 0
        """Records that do not decode: whoever reads them puts them to the dead letters."""
        self._settings = settings
        self._consumer = make_consumer(settings)
        self._outcome_written = outcome_written
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

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def turn(self, ledger: Ledger) -> int:
        """Enter what has come; returns how many records that was."""
        fetched = await self._consumer.getmany(
            timeout_ms=int(TURN_SECONDS * 1000), max_records=MAX_RECORDS
        )
        entries = _entries(ledger, self._outcome_written)
        count = 0
        for partition in sorted(fetched, key=lambda tp: self._order[tp.topic]):
            enter = entries[self._order[partition.topic]]
            for record in fetched[partition]:
                count += 1
                try:
                    enter(record)
                except BadMessage:
                    self.unreadable += 1
            await asyncio.sleep(0)
        return count


def _entries(
    ledger: Ledger, outcome_written: OutcomeWritten
) -> list[Callable[[ConsumerRecord], None]]:
    """How a record of each of `_TOPICS` is entered."""

    def signal(record: ConsumerRecord) -> None:
        message = decode(Signal, record.value)
        if message.observed_at is not None:
            ledger.signal(message.url, message.source, message.observed_at, _seconds(record))

    def outcome(record: ConsumerRecord) -> None:
        outcome_written(record.partition, record.offset, _seconds(record))
        ledger.outcome(decode(CrawlOutcome, record.value), _seconds(record))

    def dead_letter(record: ConsumerRecord) -> None:
        letter = Letter.read(record)
        if letter is not None:
            ledger.dead_letter(letter.stage or "?", letter.topic or "?", letter.error or "?")

    return [
        lambda r: ledger.request(decode(CrawlRequest, r.value), _seconds(r)),
        outcome,
        signal,
        lambda r: ledger.page_signal(decode(PageSignal, r.value), _seconds(r)),
        lambda r: ledger.bandwidth(decode(Bandwidth, r.value).crawls_per_second, _seconds(r)),
        lambda r: ledger.multiplier(decode(Multipliers, r.value), _seconds(r)),
        dead_letter,
    ]


def _seconds(record: ConsumerRecord) -> float:
    return float(record.timestamp) / 1000.0
