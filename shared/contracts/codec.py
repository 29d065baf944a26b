"""Bytes to messages and back."""

import re
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

_PATTERN = re.compile(r"matching regex '.*?'")
"""All patterns of the contract keep such characters out; people need not read them."""

MAX_MESSAGE_BYTES = 64 * 1024
"""No message of the contract comes near, but demand curves of a large grid."""

T = TypeVar("T", bound=msgspec.Struct)

_ENCODER = msgspec.json.Encoder()
encode = _ENCODER.encode
"""A message as JSON bytes."""


class BadMessage(ValueError):
    """A message that cannot be taken; the text says why."""


@cache
def decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """The strict decoder of a kind of message."""
    return msgspec.json.Decoder(kind)


def decode(kind: type[T], data: bytes | None) -> T:
    """One message from the wire.

    Args:
        kind: the struct that the topic carries.
        data: the record's value; None is a tombstone.

    Raises:
        BadMessage: not JSON, wrong types or values out of range, too large, or empty.
    """
    if data is None:
        raise BadMessage("the message is empty (a tombstone), but this topic is not compacted")
    if len(data) > MAX_MESSAGE_BYTES:
        raise BadMessage(f"the message has {len(data)} bytes; at most {MAX_MESSAGE_BYTES} are read")
    try:
        return cast(T, decoder(kind).decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = _PATTERN.sub("without control characters", str(error))
        raise BadMessage(f"not a valid {kind.__name__}: {reason}") from error
