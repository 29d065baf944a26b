"""What batches pack, unpacked to so much and no further: anybody may write `signals`."""

import gzip
import io
from collections.abc import Callable
from typing import Any, Final

import cramjam

MOST_UNPACKED_BYTES: Final = 32 * 1024 * 1024
"""Of one batch. Brokers count bytes as they are packed, a million at most by default, and a million
may unpack to thirty thousand million."""

_LEAST_UNPACKED_BYTES: Final = 64 * 1024
_USUAL_RATIO: Final = 16
"""Of what is unpacked to what is packed: so much room is made first, and then more."""


class TooMuch(ValueError):
    """What is packed is larger than it may be."""


def gzip_unpacked(packed: Any) -> bytes:
    """What gzip has packed. Raises TooMuch."""
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        unpacked = file.read(MOST_UNPACKED_BYTES + 1)
    if len(unpacked) > MOST_UNPACKED_BYTES:
        raise TooMuch(f"more than {MOST_UNPACKED_BYTES} bytes")
    return unpacked


def unpacker_of(into: Callable[[Any, bytearray], int]) -> Callable[[Any], bytes]:
    """An unpacker that makes more and more room for what another writes into it; raises TooMuch.

    Args:
        into: unpacks into what it is given, and returns how much that came to.
    """

    def unpacked(packed: Any) -> bytes:
        size = _USUAL_RATIO * len(packed) + _LEAST_UNPACKED_BYTES
        while True:
            room = bytearray(min(size, MOST_UNPACKED_BYTES))
            try:
                return bytes(memoryview(room)[: into(packed, room)])
            except cramjam.DecompressionError as error:
                # It is too large, or no such text: nobody says which.
                if size >= MOST_UNPACKED_BYTES:
                    raise TooMuch(f"more than {MOST_UNPACKED_BYTES} bytes, or {error}") from error
            size *= _USUAL_RATIO

    return unpacked
