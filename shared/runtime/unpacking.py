"""gzip and deflate, unpacked as they come, a little at a time. Pure."""

import zlib
from collections.abc import Iterator
from typing import Final

PART_BYTES: Final = 64 * 1024
"""Unpacked at a time: what comes out of a few packed bytes may be huge."""

MOST_JOINED: Final = 1_000
"""Packed texts, one after the other, as who packs line by line sends them."""

_PLAIN: Final = ("", "identity")
_PACKED: Final = ("gzip", "x-gzip", "deflate")
_MAGIC: Final = b"\x1f\x8b"
"""Of gzip."""

_ANY_WRAPPER: Final = zlib.MAX_WBITS | 32
"""zlib's word for gzip and zlib alike."""


class UnknownPacking(Exception):
    """A packing that nobody here can undo; the text says which."""


class Damaged(Exception):
    """It is not packed as it says; the text says why."""


class Unpacking:
    """Bytes in, unpacked bytes out. What follows the packed ones, and is not packed, counts for
    nothing."""

    def __init__(self) -> None:
        self._unpacking: zlib._Decompress | None = None
        self._joined = 0
        self._held = b""
        self._is_over = False

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Unpack the next bytes, `PART_BYTES` at a time.

        Raises:
            Damaged: they are not packed.
        """
        part, self._held = self._held + part, b""
        while part and not self._is_over:
            if self._unpacking is None or self._unpacking.eof:
                if self._unpacking is not None:
                    # Zeros fill up the blocks of what is packed, and another may follow.
                    part = part.lstrip(b"\0")
                    if len(part) < len(_MAGIC):
                        self._held = part
                        return
                self._begin(part)
                continue
            try:
                unpacked = self._unpacking.decompress(part, PART_BYTES)
            except zlib.error as error:
                raise Damaged("it is not packed as it says") from error
            part = self._unpacking.unconsumed_tail or self._unpacking.unused_data
            if unpacked:
                yield unpacked

    def close(self) -> None:
        """The end was reached.

        Raises:
            Damaged: it was not the end of what is packed.
        """
        if self._unpacking is not None and not self._unpacking.eof:
            raise Damaged("it is packed, and broken off")

    def _begin(self, part: bytes) -> None:
        """Begin with the first of some packed texts, or with the next, if there is one."""
        if self._unpacking is not None and not part.startswith(_MAGIC):
            self._is_over = True
            return
        self._joined += 1
        if self._joined > MOST_JOINED:
            raise Damaged(f"more than {MOST_JOINED} packed texts are joined")
        self._unpacking = zlib.decompressobj(_ANY_WRAPPER)


def unpacking_of(content_encoding: str) -> Unpacking | None:
    """What unpacks a body; None: it is not packed.

    Args:
        content_encoding: the header.

    Raises:
        UnknownPacking: neither gzip nor deflate.
    """
    encoding = content_encoding.strip().lower()
    if encoding in _PLAIN:
        return None
    if encoding not in _PACKED:
        raise UnknownPacking(f"Content-Encoding {encoding[:40]!r}: gzip and deflate are known")
    return Unpacking()
