"""What is on the topic `dead-letters`: records that could not be taken, and what became of them.

A letter is the record as it came, with headers that say where it came from and why it is here. The
topic is a log, so what became of letters is a later record of it: a mark, with their offsets. A
mark lasts as long as its letters, and nothing has to be kept elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from aiokafka import ConsumerRecord

from shared.contracts.codec import MAX_MESSAGE_BYTES

MAX_VALUE_BYTES: Final = 900_000
"""A longer value is cut, so that with its headers it stays below any broker's default limit."""

MAX_HEADER_BYTES: Final = 64 * 1024
"""More of the record's own headers are left out."""

_LENGTHS: Final = 4
"""Bytes that say how long a header's name and content are, at most but for a few."""

Header = tuple[str, bytes | None]
Action = Literal["replayed", "dropped"]

_ORIGINAL: Final = "original:"
"""Stands before the names of the record's own headers."""

_CUT: Final = ("cut-from-bytes", "cut-key-bytes", "cut-headers")
_MARK: Final = "handled"
_RANGES: Final = msgspec.json.Decoder(list[tuple[int, int]])


def letter_of(
    record: ConsumerRecord, stage: str, reason: str, at: float
) -> tuple[bytes | None, bytes | None, list[Header]]:
    """Key, value and headers of the letter for a record.

    Args:
        record: as it was read.
        stage: the worker that cannot take it.
        reason: why, for people.
        at: when, wall clock, Unix seconds.
    """
    headers: list[Header] = [
        ("topic", record.topic.encode()),
        ("partition", str(record.partition).encode()),
        ("offset", str(record.offset).encode()),
        ("timestamp", str(record.timestamp).encode()),
        ("stage", stage.encode()),
        ("error", reason[:1000].encode(errors="replace")),
        ("at", str(at).encode()),
    ]
    key, value = record.key, record.value
    if value is not None and len(value) > MAX_VALUE_BYTES:
        headers.append(("cut-from-bytes", str(len(value)).encode()))
        value = value[:MAX_VALUE_BYTES]
    if key is not None and len(key) > MAX_MESSAGE_BYTES:
        headers.append(("cut-key-bytes", str(len(key)).encode()))
        key = None
    own = [(_ORIGINAL + name, content) for name, content in record.headers]
    lengths = (len(name.encode()) + len(content or b"") + _LENGTHS for name, content in own)
    if sum(lengths) > MAX_HEADER_BYTES:
        own = [("cut-headers", str(len(own)).encode())]
    if key is None and value is None:
        # The client sends no record that has neither, though others do.
        key = b""
        own.append(("no-key", b""))
    return key, value, headers + own


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that could not be taken."""

    offset: int
    """Of the letter, on `dead-letters`."""
    topic: str
    """Full name, with the prefix; empty: whoever wrote the letter did not say."""
    partition: int
    original_offset: int
    timestamp_ms: int
    """Of the record; negative: none."""
    stage: str
    error: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The record's own."""
    cut: str
    """What of the record is missing; empty: nothing."""

    @classmethod
    def read(cls, record: ConsumerRecord) -> "Letter | None":
        """The letter in a record of `dead-letters`; None: it is a mark.

        Anything may be written there; what a letter does not say is empty or −1.
        """
        given: dict[str, bytes] = {name: content or b"" for name, content in record.headers}
        if _MARK in given:
            return None
        return cls(
            offset=record.offset,
            topic=_text(given, "topic"),
            partition=_number(given, "partition"),
            original_offset=_number(given, "offset"),
            timestamp_ms=_number(given, "timestamp"),
            stage=_text(given, "stage"),
            error=_text(given, "error"),
            key=None if "no-key" in given else record.key,
            value=record.value,
            headers=tuple(
                (name.removeprefix(_ORIGINAL), content)
                for name, content in record.headers
                if name.startswith(_ORIGINAL)
            ),
            cut=", ".join(name for name in _CUT if name in given),
        )


def _text(given: Mapping[str, bytes], name: str) -> str:
    return given.get(name, b"").decode(errors="replace")


def _number(given: Mapping[str, bytes], name: str) -> int:
    digits = _text(given, name)
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1


def mark_of(action: Action, offsets: Iterable[int]) -> tuple[bytes, list[Header]]:
    """Value and headers of the record that says what became of letters."""
    return msgspec.json.encode(_ranges(sorted(set(offsets)))), [(_MARK, action.encode())]


def _ranges(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of numbers that follow each other, as (first, last)."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


class Handled:
    """What became of letters, as far as marks say; in memory by runs of offsets."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, str]] = []

    def read(self, record: ConsumerRecord) -> None:
        """Take in a record of `dead-letters`, if it is a mark that can be read."""
        action = dict(record.headers).get(_MARK)
        if action is None or record.value is None:
            return
        try:
            ranges = _RANGES.decode(record.value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        # A mark speaks of what came before it only.
        self._ranges += [
            (first, min(last, record.offset - 1), action.decode(errors="replace"))
            for first, last in ranges
        ]

    def of(self, offset: int) -> str | None:
        """What became of a letter, by the last mark; None: nothing yet."""
        for first, last, action in reversed(self._ranges):
            if first <= offset <= last:
                return action
        return None
