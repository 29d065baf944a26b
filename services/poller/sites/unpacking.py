"""gzip, unpacked as it comes and no further than a limit."""

import zlib
from collections.abc import Iterator
from typing import Final

from services.poller.sites.entries import BadDocument

_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = zlib.MAX_WBITS | 16
PART_BYTES: Final = 128 * 1024
"""Unpacked at a time."""

MOST_LAYERS: Final = 2
"""A packed file that a server packs once more for the way."""


class Unpacker:
    """Bytes in, unpacked bytes out, whatever the name and the headers say."""

    def __init__(self, most_bytes: int, layers: int = MOST_LAYERS) -> None:
        """Make it.

        Args:
            most_bytes: that may come out.
            layers: of packing that may still come.
        """
        self._most_bytes = most_bytes
        self._left = most_bytes
        self._head = b""
        self._begun = False
        self._layers = layers
        self._unpacking: zlib._Decompress | None = None
        self._inner: Unpacker | None = None

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Unpack the next bytes.

        Raises:
            BadDocument: too much comes out, or it is damaged.
        """
        if not self._begun:
            self._head += part
            if len(self._head) < len(_MAGIC):
                return
            part, self._head, self._begun = self._head, b"", True
            if part.startswith(_MAGIC) and self._layers:
                self._unpacking = zlib.decompressobj(_GZIP)
                self._inner = Unpacker(self._most_bytes, self._layers - 1)
        if self._inner is None:
            yield self._counted(part)
            return
        for unpacked in self._unpacked(part):
            yield from self._inner.feed(unpacked)

    def close(self) -> Iterator[bytes]:
        """The end was reached; what was held back.

        Raises:
            BadDocument: it was not the end of what is packed.
        """
        if self._inner is not None:
            if self._unpacking is not None and not self._unpacking.eof:
                raise BadDocument("the packed file is broken off")
            yield from self._inner.close()
        elif self._head:
            yield self._counted(self._head)

    def _unpacked(self, part: bytes) -> Iterator[bytes]:
        while part:
            unpacking = self._unpacking
            if unpacking is None or unpacking.eof:
                # Packed files may be joined; zeros may follow.
                part = part.lstrip(b"\0")
                if not part:
                    return
                unpacking = self._unpacking = zlib.decompressobj(_GZIP)
            try:
                unpacked = unpacking.decompress(part, PART_BYTES)
            except zlib.error as error:
                raise BadDocument("the packed file is damaged") from error
            part = unpacking.unconsumed_tail or unpacking.unused_data
            if unpacked:
                yield self._counted(unpacked)

    def _counted(self, part: bytes) -> bytes:
        self._left -= len(part)
        if self._left < 0:
            raise BadDocument(f"unpacked it has more than {self._most_bytes} bytes")
        return part
