"""Bad messages: finding those that make a batch fail, and knowing when there are too many."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from shared.runtime.settings import Settings

T = TypeVar("T")

PIECES: Final = 16
"""A piece that fails is cut into so many. Not into two: a failure may cost the loading of a shard,
a success only a commit, and one bad record of 20,000 is found with 4 failures instead of 15."""

MAX_REASON: Final = 500


class Pieces(Generic[T]):
    """A batch that failed, to be done piece by piece, in order; what fails is cut further."""

    def __init__(self, items: Sequence[T]) -> None:
        self._waiting: deque[Sequence[T]] = deque([items] if items else [])

    def __iter__(self) -> Iterator[Sequence[T]]:
        while self._waiting:
            yield self._waiting.popleft()

    def split(self, piece: Sequence[T]) -> bool:
        """Put the parts of a piece that failed before the others.

        Returns:
            False if it is a single item: that is the one that fails.
        """
        if len(piece) <= 1:
            return False
        size = -(-len(piece) // PIECES)
        parts = [piece[begin : begin + size] for begin in range(0, len(piece), size)]
        self._waiting.extendleft(reversed(parts))
        return True


def reason_of(error: BaseException) -> str:
    """Why a record is set aside that could be read, but fails by itself every time."""
    text = str(error).strip().partition("\n")[0][:MAX_REASON]
    return f"it fails every time, by itself too: {type(error).__name__}: {text}"


class TooManyBadMessages(Exception):
    """So many messages of a topic are bad that something is wrong with their sender, or here."""

    def __init__(self, topic: str, text: str) -> None:
        super().__init__(text)
        self.topic = topic


class Count(NamedTuple):
    """Messages of a topic."""

    read: int = 0
    bad: int = 0

    def __add__(self, other: "Count") -> "Count":  # type: ignore[override]
        return Count(self.read + other.read, self.bad + other.bad)


class BadShare:
    """The share of bad messages of each topic, over the last one to two halves of a window.

    Times are wall (monotonic) seconds, handed in.
    """

    def __init__(self, share: float, least: int, window_seconds: float) -> None:
        self._share = share
        self._least = least
        self._half = window_seconds / 2
        self._began_at = float("-inf")
        self._now: dict[str, Count] = {}
        self._before: dict[str, Count] = {}

    @classmethod
    def of(cls, settings: Settings) -> "BadShare":
        """As configured."""
        return cls(
            settings.bad_messages_share,
            settings.bad_messages_least,
            settings.bad_messages_window_seconds,
        )

    def check(self, counts: Mapping[str, Count], now: float) -> None:
        """Look at a batch before its bad messages are set aside.

        Raises:
            TooManyBadMessages: with this batch, a topic has more than the share.
        """
        self._roll(now)
        for topic, count in counts.items():
            total = self._now.get(topic, Count()) + self._before.get(topic, Count()) + count
            if count.bad and total.read >= self._least and total.bad > self._share * total.read:
                raise TooManyBadMessages(
                    topic,
                    f"{total.bad} of the last {total.read} messages of {topic} are bad, more than "
                    f"{self._share:.0%} (FRESHET_BAD_MESSAGES_SHARE): reading has stopped before "
                    "them. See `freshet dead-letters list` for reasons, mend their sender or this "
                    "worker and start it again; to set them all aside, start it with 1",
                )

    def add(self, counts: Mapping[str, Count], now: float) -> None:
        """Count a batch that is done."""
        self._roll(now)
        for topic, count in counts.items():
            self._now[topic] = self._now.get(topic, Count()) + count

    def _roll(self, now: float) -> None:
        if now < self._began_at + self._half:
            return
        is_next = now < self._began_at + 2 * self._half
        self._before = self._now if is_next else {}
        self._now, self._began_at = {}, now
