"""The broker: partitions in memory, and what was acknowledged."""

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
    followers: list[Callable[[], None]] = field(default_factory=list)
    """Called when there is something new."""
    unreadable_until: float = 0.0
    """It has no leader that is read from before; virtual seconds."""
    _seen: dict[int, Stored] = field(default_factory=dict)

    def append(self, batch: Iterable[Given], now: float, batch_number: int = 0) -> Stored:
        """Take a batch, once: whoever sends the same one again hears where it stands."""
        if batch_number in self._seen:
            before = self._seen[batch_number]
            # Of a batch that came twice a broker does not say when it came.
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
        self._batches = 0

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
        """All records of a topic, partition by partition."""
        return [record for part in self.topics[topic] for record in part.records]
