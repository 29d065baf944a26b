"""gzip, unpacked as it comes and no further than a limit."""

from collections.abc import Iterator
from typing import Final

from services.poller.sites.entries import BadDocument
from shared.runtime.unpacking import Damaged, Unpacking

_MAGIC: Final = b"\x1f\x8b"

MOST_LAYERS: Final = 2
"""A packed file that a server packs once more for the way."""


class Unpacker:
    """Bytes in, unpacked bytes out, whatever the name and the headers say. What follows a packed
    file, and is not packed, counts for nothing."""

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
        self._unpacking = Unpacking()
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
                self._inner = Unpacker(self._most_bytes, self._layers - 1)
        if self._inner is None:
            yield self._counted(part)
            return
        try:
            for unpacked in self._unpacking.feed(part):
                yield from self._inner.feed(self._counted(unpacked))
        except Damaged as error:
            raise BadDocument(f"the packed file is damaged: {error}") from error

    def close(self) -> Iterator[bytes]:
        """The end was reached; what was held back.

        Raises:
            BadDocument: it was not the end of what is packed.
        """
        if self._inner is not None:
            try:
                self._unpacking.close()
            except Damaged as error:
                raise BadDocument(str(error)) from error
            yield from self._inner.close()
        elif self._head:
            yield self._counted(self._head)

    def _counted(self, part: bytes) -> bytes:
        self._left -= len(part)
        if self._left < 0:
            raise BadDocument(f"unpacked it has more than {self._most_bytes} bytes")
        return part
