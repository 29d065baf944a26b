"""Reading what was posted: so many bytes, in so much time, packed or not.

What all bodies together take has a limit too, and no address may take more than a part of that: a
sender that is slow, or opens many, does not keep others out.
"""

import asyncio
import contextlib
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from services.receiver.refusing import Refused

BODY_SECONDS: Final = 20.0
"""A body that takes longer to come is given up."""

TOGETHER_BYTES: Final = 64 * 1024 * 1024
"""Of all bodies that are in memory."""

ADDRESS_SHARE: Final = 0.25
"""How much of that one address may take."""

RETRY_SECONDS: Final = 2
MOST_JOINED: Final = 1_000
"""Packed texts, one after the other, as who packs line by line sends them."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_PART_BYTES: Final = 16 * 1024
_ANY_WRAPPER: Final = zlib.MAX_WBITS | 32
"""zlib's word for gzip and zlib alike."""


class Bodies:
    """Reads bodies, and counts what they take."""

    def __init__(
        self,
        max_bytes: int,
        seconds: float = BODY_SECONDS,
        together_bytes: int = TOGETHER_BYTES,
    ) -> None:
        """Make it.

        Args:
            max_bytes: of one body, packed and unpacked.
            seconds: that one may take to come.
            together_bytes: of all at a time.
        """
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._together_bytes = max(together_bytes, max_bytes)
        self._address_bytes = max(self._together_bytes * ADDRESS_SHARE, max_bytes)
        self._held: Counter[str] = Counter()
        self._together = 0

    async def read(self, request: web.Request, address: str) -> bytes:
        """The body, unpacked.

        Args:
            request: whose body has not been read.
            address: of the sender, or the network that counts as one.

        Raises:
            Refused: too large, too slow, damaged, packed in a way that is not known, or too many
                bodies are being read.
        """
        if (request.content_length or 0) > self._max_bytes:
            raise self._too_large()
        packed = bytearray()
        with self._holding(address) as hold:
            try:
                async with asyncio.timeout(self._seconds):
                    async for part in request.content.iter_any():
                        hold(len(part))
                        packed += part
                        if len(packed) > self._max_bytes:
                            raise self._too_large()
            except TimeoutError as error:
                raise Refused(408, f"the body takes longer than {self._seconds:g} s") from error
            except web.RequestPayloadError as error:
                raise Refused(400, "the body is broken off or damaged") from error
            return self._unpacked(
                bytes(packed), request.headers.get("Content-Encoding", "").strip().lower()
            )

    @contextlib.contextmanager
    def _holding(self, address: str) -> Iterator["_Hold"]:
        hold = _Hold(self, address)
        try:
            yield hold
        finally:
            self._count(address, -hold.bytes)

    def _count(self, address: str, change: int) -> None:
        self._together += change
        self._held[address] += change
        if not self._held[address]:
            del self._held[address]

    def take(self, address: str, count: int) -> None:
        """Count bytes that are about to be kept.

        Raises:
            Refused: there is no room for them now.
        """
        if (
            self._together + count > self._together_bytes
            or self._held[address] + count > self._address_bytes
        ):
            raise Refused(503, "too much is being received at once", RETRY_SECONDS)
        self._count(address, count)

    def _unpacked(self, body: bytes, encoding: str) -> bytes:
        if encoding in ("", "identity"):
            return body
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise Refused(415, f"Content-Encoding {encoding[:40]!r}: gzip and deflate are known")
        unpacked, begin = bytearray(), 0
        try:
            for _ in range(MOST_JOINED):
                begin = self._unpack(body, begin, unpacked)
                if not body.startswith(_GZIP_MAGIC, begin):
                    return bytes(unpacked)
        except zlib.error as error:
            raise Refused(400, f"the body is not {encoding}") from error
        raise Refused(400, f"more than {MOST_JOINED} packed texts are joined")

    def _unpack(self, body: bytes, begin: int, unpacked: bytearray) -> int:
        """Unpack what begins at a place, and add it to what is unpacked; where it ends."""
        unpacking = zlib.decompressobj(_ANY_WRAPPER)
        while not unpacking.eof:
            # By parts: what follows is copied each time.
            part = body[begin : begin + _PART_BYTES]
            if not part:
                raise Refused(400, "the packed body is broken off")
            unpacked += unpacking.decompress(part, self._max_bytes - len(unpacked) + 1)
            if len(unpacked) > self._max_bytes:
                raise self._too_large()
            begin += len(part) - len(unpacking.unused_data)
        return begin

    def _too_large(self) -> Refused:
        return Refused(413, f"at most {self._max_bytes} bytes are taken, unpacked")


class _Hold:
    """What one request has taken."""

    def __init__(self, bodies: Bodies, address: str) -> None:
        self._bodies = bodies
        self._address = address
        self.bytes = 0

    def __call__(self, count: int) -> None:
        self._bodies.take(self._address, count)
        self.bytes += count
