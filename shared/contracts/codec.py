"""Bytes to messages and back."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec

from shared.contracts.characters import are_allowed, why_not_allowed
from shared.contracts.escapes import whole_characters
from shared.contracts.fields import MAX_UNIX_SECONDS
from shared.contracts.messages import Bandwidth, Discovery, Multipliers

MAX_MESSAGE_BYTES = 64 * 1024
"""No message of the contract comes near, but demand curves of a large grid, and links."""

MAX_LARGE_BYTES = 1024 * 1024
"""Of a thousand links, or of what thousands of shards and a hundred groups of hosts may crawl;
brokers take no more either, unless they are told to."""

MAX_SCHEDULE_BYTES = 256 * 1024
"""Of a day with another rate each minute, with as many digits as a number has."""

_MOST_BYTES: Final[Mapping[type[msgspec.Struct], int]] = {
    Bandwidth: MAX_SCHEDULE_BYTES,
    Discovery: MAX_LARGE_BYTES,
    Multipliers: MAX_LARGE_BYTES,
}
"""Of the kinds of messages that may be longer than others."""

_MOST_EXACT: Final = 2.0**53

_TOO_LATE: Final = f"Expected `float` <= {MAX_UNIX_SECONDS}"
"""What the decoder says of a later time; no other number has this bound."""

_NOT_READ: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T = TypeVar("T", bound=msgspec.Struct)

_ENCODER = msgspec.json.Encoder()
encode = _ENCODER.encode
"""A message as JSON bytes."""


class BadMessage(ValueError):
    """A message that cannot be taken; the text says why."""


def most_bytes(kind: type[msgspec.Struct]) -> int:
    """How many bytes a message of a kind may have."""
    return _MOST_BYTES.get(kind, MAX_MESSAGE_BYTES)


@cache
def decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """The strict decoder of a kind of message."""
    return msgspec.json.Decoder(kind)


def decode_many(
    kind: type[T], values: Iterable[bytes | None]
) -> tuple[list[T], dict[int, BadMessage]]:
    """Messages from the wire, in their order; and what is wrong with the others, by their index.

    As `decode` one by one, at half of the price.
    """
    given, read = list(values), decoder(kind).decode
    with contextlib.suppress(TypeError, *_NOT_READ):  # of a tombstone, and of what cannot be read
        texts = cast(list[bytes], given)
        if max(map(len, texts), default=0) <= MAX_MESSAGE_BYTES:
            found = [read(text) for text in texts]
            if are_allowed(kind, found):
                return found, {}
    messages: list[T] = []
    bad: dict[int, BadMessage] = {}
    take = messages.append
    for index, data in enumerate(given):
        try:
            if data is None or len(data) > MAX_MESSAGE_BYTES:
                take(decode(kind, data))
            else:
                take(_read(kind, read, data))
        except BadMessage as error:
            bad[index] = error
    return messages, bad


def decode(kind: type[T], data: bytes | None) -> T:
    """One message from the wire.

    Args:
        kind: the struct that the topic carries.
        data: the record's value; None is a tombstone.

    Raises:
        BadMessage: not JSON, wrong types or values out of range, too large, or empty.
    """
    if data is None:
        raise BadMessage("the message is empty (a tombstone), which says nothing on this topic")
    if len(data) > (most := most_bytes(kind)):
        raise BadMessage(f"the message has {len(data)} bytes; at most {most} are read")
    return _read(kind, decoder(kind).decode, data)


def why_not_read(error: Exception) -> str:
    """What a decoder finds wrong; of a time beyond all others, what its sender most likely did."""
    hint = "Expected Unix seconds, and so large a number looks like milliseconds"
    return str(error).replace(_TOO_LATE, hint)


def _read(kind: type[T], strictly: Callable[[bytes], T], data: bytes) -> T:
    """A message as it is, or else with what JSON allows, and the strict decoder refuses: half of a
    character, also in a field that nobody reads, and whole numbers that are written as `200.0`.

    Raises:
        BadMessage: it is bad besides.
    """
    try:
        message = strictly(data)
    except _NOT_READ:
        message = _read_again(kind, data)
    if (reason := why_not_allowed(kind, message)) is not None:
        raise _bad(kind, reason)
    return message


def _read_again(kind: type[T], data: bytes) -> T:
    try:
        said = msgspec.json.decode(whole_characters(data))
        if isinstance(said, dict):
            said = {name: _whole(value) for name, value in said.items()}
        return msgspec.convert(said, kind)
    except _NOT_READ as error:
        raise _bad(kind, why_not_read(error)) from error


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _MOST_EXACT
    return int(value) if is_whole else value


def _bad(kind: type[msgspec.Struct], reason: str) -> BadMessage:
    return BadMessage(f"not a valid {kind.__name__}: {reason}")
