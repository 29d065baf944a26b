"""Whether a partition can be read on from where its reader stands.

Three things can come between, and none may pass silently. Records are gone before they were read
(retention, or an operator): that is counted and said, and the reader goes on behind the gap. The
log ends before the reader's position (brokers lost what they had acknowledged), or the topic is
another one under the same name: what was read then is not what is there now, so the reader stops
until people have looked (`freshet positions`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from shared.runtime import metrics
from shared.runtime.aiokafka_patches import client_of
from shared.runtime.kafka import may_pass
from shared.runtime.topic_metadata import topic_ids

log = structlog.get_logger(__name__)

T = TypeVar("T")

LOOK_SECONDS: Final = 10.0
"""Between two looks whether the topics are still the same."""

ANSWER_SECONDS: Final = 5.0
"""A broker that takes longer is asked again."""

AGAIN_SECONDS: Final = 0.5

LOOKS: Final = 4
"""An end before a position is believed after so many looks."""

ADVICE: Final = (
    "nothing is read until people have looked: `freshet positions list` shows where everything "
    "stands, `freshet positions settle` says how to go on"
)


class StreamBroken(Exception):
    """A partition does not continue what was read of it; the text says how, and what to do."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"{reason}: {ADVICE}")
        self.topic = topic
        """Without prefix."""


class KnownTopics(Protocol):
    """Which topics the durable positions are about: kept with them, where there is a database."""

    async def note(self, ids: Mapping[str, str]) -> Mapping[str, str]:
        """Remember the ids of topics, by name without prefix, of which none is known yet.

        Returns:
            the ids that are known now. Waits for the database.
        """
        ...


class Continuity:
    """Where the partitions of a consumer can be read on; names are as in `Lag`."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        names: Mapping[str, str],
        known: KnownTopics | None = None,
    ) -> None:
        self._consumer = consumer
        self._names = names
        self._known = known
        self._ids: dict[str, str] = {}
        """Topic (without prefix) → id that its positions are about."""
        self._told: dict[TopicPartition, tuple[int, int]] = {}
        """From where, and up to where, a gap was said already."""
        self._broken: Exception | None = None
        self._given_up = False
        metrics.begin(names.values(), metrics.STREAM_GAP)

    async def starts(
        self, wanted: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """Where to begin to read. Waits for the broker.

        Args:
            wanted: where reading is to go on; None: where the log begins.
        """
        return self._starts(wanted, await self._asked(lambda: self._begins(wanted)))

    async def starts_now(
        self, wanted: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """As `starts`, for who has others to read meanwhile: the broker is asked once.

        Raises:
            KafkaError, TimeoutError: it does not say.
        """
        begins = await asyncio.wait_for(self._begins(wanted), ANSWER_SECONDS)
        return self._starts(wanted, begins)

    async def _begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict(await self._consumer.beginning_offsets(list(partitions)))

    def _starts(
        self, wanted: Mapping[TopicPartition, int | None], begins: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return {tp: self._start(tp, offset, begins[tp]) for tp, offset in wanted.items()}

    async def behind(
        self, refused: Mapping[TopicPartition, int], done: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where to go on in partitions whose positions the broker does not have.

        Args:
            refused: the positions.
            done: up to where what was read is done with; what was read behind that is read again.

        Returns:
            where a gap ends; nothing of those that the broker has now.

        Raises:
            StreamBroken: they are beyond the end.
        """
        await self.check()
        begins = await self._asked(lambda: self._begins(refused))
        ends = await self._ends(refused)
        for tp, offset in refused.items():
            if offset > ends[tp]:
                raise StreamBroken(
                    self._names[tp.topic],
                    f"partition {tp.partition} of {self._names[tp.topic]} was read up to offset "
                    f"{offset}, but ends at {ends[tp]}; brokers have lost records that they had "
                    "acknowledged, or the topic was made anew",
                )
        gone = [tp for tp, offset in refused.items() if offset < begins[tp]]
        return {tp: self._start(tp, done.get(tp, refused[tp]), begins[tp]) for tp in gone}

    async def check(self) -> None:
        """Look whether the topics are those that the positions are about. Waits for the broker.

        Raises:
            StreamBroken: one of them is another one.
        """
        found = {
            self._names[name]: topic_id
            for name, topic_id in (await self._asked(self._ask_for_ids)).items()
        }
        new = {topic: topic_id for topic, topic_id in found.items() if topic not in self._ids}
        if new:
            known = await self._known.note(new) if self._known is not None else new
            self._ids |= {topic: known.get(topic, topic_id) for topic, topic_id in new.items()}
        for topic, topic_id in found.items():
            if topic_id != self._ids[topic]:
                raise StreamBroken(
                    topic,
                    f"{topic} is another topic than the one that was read (id {topic_id}, not "
                    f"{self._ids[topic]}): it was removed and made anew",
                )

    def give_up(self) -> None:
        """The worker stops: do not wait for the broker any longer."""
        self._given_up = True

    def raise_if_broken(self) -> None:
        """Say what `run` has found.

        Raises:
            StreamBroken: a topic is another one.
            KafkaError, psycopg.Error: it cannot be looked at.
        """
        if self._broken is not None:
            raise self._broken

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while self._broken is None:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.check()
            except Exception as error:  # raised in the reading loop, after its batch
                self._broken = error

    async def _ends(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where partitions end; a broker that has just begun to lead may not know all of it yet."""
        ends: dict[TopicPartition, int] = {}
        for turn in range(LOOKS):
            if turn:
                await asyncio.sleep(AGAIN_SECONDS)
            ends = await self._asked(lambda: self._consumer.end_offsets(list(reached)))
            if all(ends[tp] >= offset for tp, offset in reached.items()):
                break
        return ends

    def _start(self, tp: TopicPartition, wanted: int | None, begin: int) -> int:
        if wanted is None or wanted >= begin:
            return begin if wanted is None else wanted
        first, last = self._told.get(tp, (begin, begin))
        self._tell(tp, wanted, min(first, begin))
        self._tell(tp, max(wanted, last), begin)
        self._told[tp] = (min(wanted, first), begin)
        return begin

    def _tell(self, tp: TopicPartition, since: int, before: int) -> None:
        """Say that records from an offset up to, and without, another are gone; maybe none."""
        lost = before - since
        if lost <= 0:
            return
        topic = self._names[tp.topic]
        metrics.STREAM_GAP.labels(topic).inc(lost)
        log.error(
            "records are gone that were never read",
            topic=topic,
            partition=tp.partition,
            first_offset=since,
            last_offset=before - 1,
        )

    async def _ask_for_ids(self) -> dict[str, str]:
        return await topic_ids(client_of(self._consumer), self._names)

    async def _asked(self, question: Callable[[], Awaitable[T]]) -> T:
        """The broker's answer, however long that takes."""
        while True:
            try:
                return await asyncio.wait_for(question(), ANSWER_SECONDS)
            except (KafkaError, TimeoutError) as error:
                if self._given_up or not may_pass(error):
                    raise
            await asyncio.sleep(AGAIN_SECONDS)
