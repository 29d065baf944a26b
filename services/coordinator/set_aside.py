"""Bad records, of which each is to be set aside once: by the coordinator that leads.

Others hold those that they have read of late: a leader may die before it has set one aside. And
bad records stand on the topics for long, so each start reads them again. Who begins to lead looks
which letters there are.
"""

import asyncio
import contextlib
import time
from collections import deque
from typing import Final, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from shared.contracts.topics import DEAD_LETTERS
from shared.runtime.dead_letters import Letter
from shared.runtime.kafka import make_consumer
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

LOOK_BACK: Final = 50_000
"""So many letters are looked through. One before them is set aside again, which harms nobody."""

LOOK_SECONDS: Final = 5.0

HELD_SECONDS: Final = 60.0
"""Who does not lead holds a bad record for so long: by then the leader has seen it, or another
leads."""

HELD_BYTES: Final = 16 * 1024 * 1024


class Bad(NamedTuple):
    """A record that cannot be taken."""

    record: ConsumerRecord
    reason: str
    read_at: float
    """Monotonic seconds."""


class BadRecords:
    """Those that are not set aside yet, as far as is known; the oldest go when they are many."""

    def __init__(self) -> None:
        self._waiting: deque[Bad] = deque()
        self._bytes = 0
        self._is_sure = False

    def add(self, record: ConsumerRecord, reason: str) -> None:
        """A record has been found that cannot be taken."""
        self._waiting.append(Bad(record, reason, time.monotonic()))
        self._bytes += len(record.value or b"")
        self._keep_few()

    def put_back(self, taken: list[Bad]) -> None:
        """These could not be set aside: they wait again, before those that came meanwhile."""
        self._waiting.extendleft(reversed(taken))
        self._bytes += sum(len(bad.record.value or b"") for bad in taken)
        self._keep_few()

    def _keep_few(self) -> None:
        while self._bytes > HELD_BYTES and len(self._waiting) > 1:
            self._forget()

    def follow(self) -> None:
        """Another leads: hold those of late only."""
        self._is_sure = False
        oldest = time.monotonic() - HELD_SECONDS
        while self._waiting and self._waiting[0].read_at < oldest:
            self._forget()

    def _forget(self) -> None:
        self._bytes -= len(self._waiting.popleft().record.value or b"")

    async def take(self, settings: Settings, stage: str) -> list[Bad]:
        """Those that are to be set aside now, by who leads; none of them is given again."""
        taken = list(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        # Another may begin to lead meanwhile (`follow`): then the next look is one again.
        was_sure, self._is_sure = self._is_sure, True
        if taken and not was_sure:
            taken = await _not_set_aside(settings, stage, taken)
        return taken


_Identity = tuple[str, int, int, int]


async def _not_set_aside(settings: Settings, stage: str, bad: list[Bad]) -> list[Bad]:
    """Those that no letter is about. Where the broker does not tell in time, those that are left
    count as such: once more is better than never."""
    known: set[_Identity] = set()
    consumer = make_consumer(settings)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await consumer.start()
            await _look(consumer, settings, stage, known)
    except (KafkaError, TimeoutError) as error:
        log.warning("bad messages may be set aside twice", error=str(error) or repr(error))
    finally:
        with contextlib.suppress(KafkaError):
            await consumer.stop()
    return [one for one in bad if _identity(one.record) not in known]


def _identity(record: ConsumerRecord) -> _Identity:
    # A topic may be made anew: then its offsets begin again.
    # Of a time before 1970 a letter says that there is none.
    return record.topic, record.partition, record.offset, max(record.timestamp, -1)


async def _look(
    consumer: AIOKafkaConsumer, settings: Settings, stage: str, known: set[_Identity]
) -> None:
    tp = TopicPartition(settings.topic(DEAD_LETTERS.name), 0)
    consumer.assign([tp])
    begin = (await consumer.beginning_offsets([tp]))[tp]
    end = (await consumer.end_offsets([tp]))[tp]
    consumer.seek(tp, max(begin, end - LOOK_BACK))
    while await consumer.position(tp) < end:
        # Not all at once: each may be as long as a message may be.
        fetched = await consumer.getmany(tp, timeout_ms=1000, max_records=1000)
        for record in fetched.get(tp, ()):
            letter = Letter.read(record)
            if letter is not None and letter.stage == stage:
                known.add(
                    (letter.topic, letter.partition, letter.original_offset, letter.timestamp_ms)
                )
