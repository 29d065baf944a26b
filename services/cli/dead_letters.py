"""Reading dead letters, and dealing with them: replayed to where they came from, or dropped.

What was dealt with is marked in the log itself, after the broker has what was replayed. So a
command that is cut off can be given again: what it had marked is left out, and the few letters that
it had sent but not marked are sent once more, which the readers know by time or id.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from services.cli.kafka import read_up_to, require_topic
from shared.contracts.topics import DEAD_LETTERS, TOPICS
from shared.runtime.dead_letters import Action, Handled, Letter, mark_of
from shared.runtime.isolation import Pieces
from shared.runtime.kafka import make_consumer, may_pass, started_producer, topic_partitions
from shared.runtime.settings import Settings
from shared.units import SECONDS_PER_DAY

AT_ONCE: Final = 500
"""Letters that are replayed before they are marked."""

MOST_REPORTED: Final = 20
"""Letters that could not be replayed, and are named with the reason; the others are counted."""

_TAIL: Final = 1_000

_WIDER: Final = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are meant; what is not given does not matter."""

    topic: str | None = None
    """Without the prefix."""
    stage: str | None = None
    reason: str | None = None
    """Part of the error's text, in any case of letters."""
    first: int = 0
    last: int | None = None
    """Offsets of letters, both included."""
    since: float | None = None
    """Unix seconds of the wall."""

    def takes(self, letter: Letter, settings: Settings) -> bool:
        """Whether a letter is meant."""
        return (
            (self.topic is None or letter.topic == settings.topic(self.topic))
            and (self.stage is None or letter.stage == self.stage)
            and (self.reason is None or self.reason.casefold() in letter.error.casefold())
            and letter.offset >= self.first
            and (self.last is None or letter.offset <= self.last)
        )

    @property
    def is_everything(self) -> bool:
        """Whether nothing was given."""
        return self == Choice()


@dataclass(slots=True)
class Dealt:
    """What became of the letters that were meant."""

    matched: int = 0
    done: int = 0
    handled_before: int = 0
    failed: int = 0
    reasons: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, letter: Letter, reason: str) -> None:
        """Count a letter that stays as it is."""
        self.failed += 1
        if len(self.reasons) < MOST_REPORTED:
            self.reasons.append({"letter": letter.offset, "reason": reason})


class Log:
    """The topic `dead-letters`, from where the letters that are meant can begin to its end."""

    def __init__(
        self, consumer: AIOKafkaConsumer, tp: TopicPartition, begin: int, end: int, is_tail: bool
    ):
        self._consumer = consumer
        self._tp = tp
        self.begin = begin
        self.end = end
        self.is_tail = is_tail
        """Whether there is something before `begin` that is meant, too."""

    async def records(self) -> AsyncIterator[list[ConsumerRecord]]:
        """All records, some at a time."""
        self._consumer.seek(self._tp, self.begin)
        async for part in read_up_to(self._consumer, {self._tp: self.end}, 1000):
            yield part

    async def handled(self) -> Handled:
        """What all marks say."""
        handled = Handled()
        async for part in self.records():
            for record in part:
                handled.read(record)
        return handled


@asynccontextmanager
async def open_log(settings: Settings, choice: Choice, tail: int | None) -> AsyncIterator[Log]:
    """The log, from the choice's first letter on, or only its last `tail` records."""
    await require_topic(settings, DEAD_LETTERS)
    consumer = make_consumer(settings)
    try:
        await consumer.start()
        tp = TopicPartition(settings.topic(DEAD_LETTERS.name), 0)
        consumer.assign([tp])
        begin = max((await consumer.beginning_offsets([tp]))[tp], choice.first)
        end = (await consumer.end_offsets([tp]))[tp]
        if choice.since is not None:
            found = (await consumer.offsets_for_times({tp: int(choice.since * 1000)}))[tp]
            begin = max(begin, end if found is None else found.offset)
        is_tail = tail is not None and begin < end - tail
        if tail is not None:
            begin = max(begin, end - tail)
        yield Log(consumer, tp, min(begin, end), end, is_tail)
    finally:
        await consumer.stop()


async def newest(settings: Settings, choice: Choice, count: int) -> list[tuple[Letter, str | None]]:
    """The newest letters that are meant, oldest first, and what became of each."""
    # Marks come after their letters, so a tail that has a letter has its marks.
    tail = 2 * count + _TAIL if choice.is_everything else None
    while True:
        handled, letters = Handled(), deque[Letter](maxlen=count)
        async with open_log(settings, choice, tail) as log:
            async for part in log.records():
                for record in part:
                    handled.read(record)
                    letter = Letter.read(record)
                    if letter is not None and choice.takes(letter, settings):
                        letters.append(letter)
        if not log.is_tail or len(letters) == count:
            break
        # It had marks, and ends of transactions, in place of letters: look further back.
        tail = tail * _WIDER if tail is not None else None
    return [(letter, handled.of(letter.offset)) for letter in letters]


async def deal_with(
    settings: Settings,
    choice: Choice,
    action: Action,
    *,
    dry_run: bool,
    progress: Callable[[int, int], None],
) -> Dealt:
    """Replay or drop the letters that are meant and not handled yet.

    Args:
        settings: where the brokers are.
        choice: which letters.
        action: what to do with them.
        dry_run: only count.
        progress: called with offsets of the log: how many are looked through, of how many.

    Raises:
        KafkaError: the broker went away; give the command again.
    """
    dealt = Dealt()
    async with open_log(settings, choice, None) as log:
        handled = await log.handled()
        there = await _partitions_there(settings)
        producer = await started_producer(settings)
        try:
            waiting: list[Letter] = []
            async for part in log.records():
                waiting += _to_do(part, settings, choice, handled, dealt)
                if len(waiting) >= AT_ONCE:
                    await _do(producer, settings, waiting, action, dealt, there, dry_run=dry_run)
                    waiting = []
                progress(part[-1].offset + 1 - log.begin, log.end - log.begin)
            await _do(producer, settings, waiting, action, dealt, there, dry_run=dry_run)
        finally:
            await producer.stop()
    return dealt


async def _partitions_there(settings: Settings) -> dict[str, int]:
    """Full name of each topic that letters may be sent to → its partitions; 0: there is none."""
    topics = [topic for topic in TOPICS if topic is not DEAD_LETTERS]
    found = await topic_partitions(settings, topics)
    return {settings.topic(name): len(partitions) for name, partitions in found.items()}


def _to_do(
    records: Iterable[ConsumerRecord],
    settings: Settings,
    choice: Choice,
    handled: Handled,
    dealt: Dealt,
) -> list[Letter]:
    letters = []
    for record in records:
        letter = Letter.read(record)
        if letter is None or not choice.takes(letter, settings):
            continue
        dealt.matched += 1
        if handled.of(letter.offset) is None:
            letters.append(letter)
        else:
            dealt.handled_before += 1
    return letters


async def _do(
    producer: AIOKafkaProducer,
    settings: Settings,
    letters: list[Letter],
    action: Action,
    dealt: Dealt,
    there: Mapping[str, int],
    *,
    dry_run: bool,
) -> None:
    if action == "replayed":
        letters = _replayable(letters, there, dealt)
        if not dry_run:
            letters = await _replay(producer, letters, dealt)
    dealt.done += len(letters)
    if dry_run or not letters:
        return
    value, headers = mark_of(action, [letter.offset for letter in letters])
    await producer.send_and_wait(
        settings.topic(DEAD_LETTERS.name), value, partition=0, headers=headers
    )


def _replayable(letters: list[Letter], there: Mapping[str, int], dealt: Dealt) -> list[Letter]:
    good = []
    for letter in letters:
        if letter.topic not in there or letter.partition < 0:
            dealt.fail(letter, f"{letter.topic or 'what it says'} is no topic of this system")
        elif not there[letter.topic]:
            dealt.fail(letter, f"the broker lacks {letter.topic}: run `freshet topics ensure`")
        elif letter.partition >= there[letter.topic]:
            # The client would stop at it, and all others with it.
            dealt.fail(
                letter,
                f"{letter.topic} has {there[letter.topic]} partitions, and it came from "
                f"{letter.partition}: the topic was made anew; its sender must send it again",
            )
        elif letter.cut:
            dealt.fail(letter, f"it is not whole ({letter.cut}): its sender must send it again")
        else:
            good.append(letter)
    return good


async def _replay(producer: AIOKafkaProducer, letters: list[Letter], dealt: Dealt) -> list[Letter]:
    """Send letters to where they came from, each partition's in order; those that arrived."""
    places: dict[tuple[str, int], list[Letter]] = {}
    for letter in letters:
        places.setdefault((letter.topic, letter.partition), []).append(letter)
    arrived: list[Letter] = []
    for (topic, partition), part in places.items():
        pieces = Pieces(part)
        for piece in pieces:
            try:
                await _send(producer, topic, partition, piece)
                arrived += piece
            except KafkaError as error:
                if may_pass(error):
                    raise
                if not pieces.split(piece):
                    dealt.fail(piece[0], f"the broker refuses it: {type(error).__name__}: {error}")
    return arrived


async def _send(
    producer: AIOKafkaProducer, topic: str, partition: int, letters: Iterable[Letter]
) -> None:
    # In batches made by hand: `send` takes no record that has neither key nor value.
    sent = []
    batch = producer.create_batch()
    for letter in letters:
        fields: dict[str, Any] = {
            "timestamp": letter.timestamp_ms if letter.timestamp_ms >= 0 else None,
            "key": letter.key,
            "value": letter.value,
            "headers": list(letter.headers),
        }
        if batch.append(**fields) is None:
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(**fields)
    if batch.record_count():
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    results = await asyncio.gather(*sent, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def since_of(text: str, now: float | None = None) -> float:
    """A time as people write it: `2h`, `30m`, `1d`, `45s` ago, or Unix seconds.

    Raises:
        ValueError: it is neither.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": SECONDS_PER_DAY}
    if text[-1:] in units:
        return (time.time() if now is None else now) - float(text[:-1]) * units[text[-1]]
    return float(text)
