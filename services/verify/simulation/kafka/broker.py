"""The broker: partitions in memory, and what was acknowledged."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from aiokafka import ConsumerRecord

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.kafka.groups import Groups
from services.verify.simulation.loop import VirtualLoop
from shared.contracts.topics import TOPICS

Header = tuple[str, bytes | None]

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_APPEND_TIMED: Final = frozenset(
    topic.name for topic in TOPICS if topic.config.get("message.timestamp.type") == "LogAppendTime"
)


@dataclass(frozen=True, slots=True)
class Given:
    """A record on its way to the broker."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """What the broker says of a batch that it has."""

    offset: int
    timestamp_ms: int
    timestamp_type: int


@dataclass(slots=True)
class Partition:
    """A log. Offsets without a record are markers of transactions."""

    topic: str
    number: int
    records: list[ConsumerRecord] = field(default_factory=list)
    """In order of offset; those below `begin` are gone."""
    begin: int = 0
    end: int = 0
    appended_at: dict[int, float] = field(default_factory=dict)
    """Offset → virtual seconds."""
    removed: list[tuple[ConsumerRecord, float]] = field(default_factory=list)
    """What can be read no more, with when it was appended; virtual seconds."""
    open_since: int | None = None
    """Where a transaction begins that is not ended; None: there is none."""
    takes_nothing: bool = False
    """It has no leader that is written to."""
    followers: list[Callable[[], None]] = field(default_factory=list)
    """Called when there is something new."""
    unreadable_until: float = 0.0
    """It has no leader that is read from before; virtual seconds."""
    held: list[tuple[float, float]] = field(default_factory=list)
    """From when to when what is new could not be read; virtual seconds."""
    _seen: dict[int, Stored] = field(default_factory=dict)

    def append(self, batch: Iterable[Given], now: float, batch_number: int = 0) -> Stored:
        """Take a batch, once: whoever sends the same one again hears where it stands."""
        if batch_number in self._seen:
            before = self._seen[batch_number]
            # Kafka says when it came first. To be told nothing is harder for who asks.
            return Stored(before.offset, -1, CREATE_TIME)
        is_timed = self.topic in _APPEND_TIMED
        kind = LOG_APPEND_TIME if is_timed else CREATE_TIME
        first, at_ms = self.end, int((BEGINNING + now) * 1000)
        for given in batch:
            timestamp = at_ms if is_timed else given.timestamp_ms
            self.records.append(
                ConsumerRecord(
                    self.topic,
                    self.number,
                    self.end,
                    timestamp,
                    kind,
                    given.key,
                    given.value,
                    None,
                    -1 if given.key is None else len(given.key),
                    -1 if given.value is None else len(given.value),
                    given.headers,
                )
            )
            self.appended_at[self.end] = now
            self.end += 1
        stored = Stored(first, at_ms if is_timed else -1, kind)
        if batch_number:
            self._seen[batch_number] = stored
        self.tell()
        return stored

    @property
    def stable(self) -> int:
        """Up to where it is read: before the first record of a transaction that is not ended."""
        return self.end if self.open_since is None else self.open_since

    def history(self) -> list[tuple[ConsumerRecord, float]]:
        """All that was ever to be read, in order, with when it was appended; virtual seconds."""
        there = [(record, self.appended_at[record.offset]) for record in self.records]
        return sorted(self.removed + there, key=lambda one: (one[1], one[0].offset))

    def hold(self, begin: float, end: float) -> None:
        """It has no leader that is read from; virtual seconds."""
        self.held.append((begin, end))
        self.unreadable_until = max(self.unreadable_until, end)

    def is_led(self, now: float) -> bool:
        """Whether it has a leader that is read from."""
        return self.unreadable_until <= now

    def read_from(self, at: float, seconds: float) -> float:
        """From when on something that was appended at a time could be read for so many seconds
        without a break; virtual seconds."""
        for begin, end in sorted(self.held):
            if begin < at + seconds and at < end:
                at = end
        return at

    def begin_transaction(self) -> None:
        """What is appended from now on is in a transaction."""
        self.open_since = self.end

    def end_transaction(self, *, is_committed: bool) -> None:
        """Let all of it be read, or nothing."""
        since, self.open_since = self.open_since, None
        if since is None:
            return
        if not is_committed:
            self.records = [record for record in self.records if record.offset < since]
        self.mark()

    def keep_from(self, offset: int) -> None:
        """Retention: what is older is gone."""
        self._remove(lambda record: record.offset < offset)
        self.begin = offset
        self.tell()

    def lose_from(self, offset: int) -> None:
        """A broker leads that has not all that was acknowledged: what comes next stands where
        something else was."""
        self._remove(lambda record: record.offset >= offset)
        self.end = offset
        self.open_since = None
        self._seen = {n: at for n, at in self._seen.items() if at.offset < offset}
        self.tell()

    def make_anew(self) -> None:
        """It is another one of the same name."""
        self.lose_from(0)
        self.begin = 0

    def _remove(self, is_gone: Callable[[ConsumerRecord], bool]) -> None:
        self.removed += [(r, self.appended_at[r.offset]) for r in self.records if is_gone(r)]
        self.records = [record for record in self.records if not is_gone(record)]

    def mark(self) -> None:
        """Take the marker of a transaction: an offset without a record."""
        self.end += 1
        self.tell()

    def tell(self) -> None:
        """Let those who read know that there may be something new."""
        for follower in self.followers:
            follower()

    def between(self, first: int, until: int, most: int) -> list[ConsumerRecord]:
        """Records of offsets [first, until), the first ones."""
        records = self.records
        low, high = 0, len(records)
        while low < high:
            middle = (low + high) // 2
            if records[middle].offset < first:
                low = middle + 1
            else:
                high = middle
        found = records[low : low + most]
        while found and found[-1].offset >= until:
            found.pop()
        return found


class Broker:
    """All partitions and groups. One server; it may be down."""

    def __init__(self, loop: VirtualLoop, partitions: int, single: frozenset[str]) -> None:
        """Make an empty one.

        Args:
            loop: of the simulation.
            partitions: of each topic.
            single: topics that have one partition only.
        """
        self.loop = loop
        self.groups = Groups(loop)
        self.topics: dict[str, list[Partition]] = {
            topic.name: [
                Partition(topic.name, number)
                for number in range(1 if topic.name in single else partitions)
            ]
            for topic in TOPICS
        }
        self.anew: Counter[str] = Counter()
        """How often topics were made anew."""
        self.growing: list[Callable[[], None]] = []
        """Called when a topic has got partitions."""
        self._added: list[tuple[float, str, int]] = []
        """When which topic got partitions, and how many it had before."""
        self._batches = 0

    def topic_id(self, topic: str) -> str:
        """Which topic is meant by a name."""
        return f"{topic} #{self.anew[topic]}"

    def make_anew(self, topic: str) -> None:
        """Remove a topic, and make another one of its name."""
        self.anew[topic] += 1
        for log in self.topics[topic]:
            log.make_anew()

    def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have so many; clients learn of it later."""
        logs = self.topics[topic]
        if len(logs) < count:
            self._added.append((self.loop.now, topic, len(logs)))
            logs += [Partition(topic, number) for number in range(len(logs), count)]
            for call in self.growing:
                call()

    def count_at(self, topic: str, at: float) -> int:
        """How many partitions a topic had at a time; virtual seconds."""
        for added_at, name, before in self._added:
            if name == topic and added_at > at:
                return before
        return len(self.topics[topic])

    def partition(self, topic: str, number: int) -> Partition:
        """One partition."""
        return self.topics[topic][number]

    def next_batch(self) -> int:
        """A number that no other batch has."""
        self._batches += 1
        return self._batches

    def append(self, topic: str, number: int, batch: Iterable[Given], batch_number: int) -> Stored:
        """Take a batch now."""
        return self.partition(topic, number).append(batch, self.loop.now, batch_number)

    def records(self, topic: str) -> list[ConsumerRecord]:
        """All records of a topic that can be read, partition by partition."""
        return [record for part in self.topics[topic] for record in part.records]
