"""Reading what was posted: so many bytes, in so much time, packed or not.

What all bodies together take has a limit too, and no address may take more than a part of that: a
sender that is slow, or opens many, does not keep others out. A body counts unpacked, until it is
answered; once something was made of it, that counts instead, and the body is gone.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from aiohttp import web

from services.receiver.refusing import Refused
from shared.runtime.unpacking import Damaged, UnknownPacking, Unpacking, unpacking_of

BODY_SECONDS: Final = 20.0
"""A body that takes longer to come is given up."""

TOGETHER_BYTES: Final = 64 * 1024 * 1024
"""Of all bodies that are in memory, or what was made of them."""

ADDRESS_SHARE: Final = 0.25
"""How much of that one address may take."""

SHORT_BYTES: Final = 10_000
"""Work on longer bodies is done in a thread, so that others are answered meanwhile; and on one at a
time, as it may take many times what the body does."""

RETRY_SECONDS: Final = 2
_PART_BYTES: Final = 16 * 1024

T = TypeVar("T")


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
        # One body fits whatever is set, also while it is there both packed and unpacked.
        self._together_bytes = max(together_bytes, 2 * max_bytes)
        self._address_bytes = max(self._together_bytes * ADDRESS_SHARE, 2 * max_bytes)
        self._held: Counter[str] = Counter()
        self.held_bytes = 0
        """Of all, now."""
        self.turn = asyncio.Lock()
        """Of who works on a long body."""

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request, address: str) -> AsyncIterator["Body"]:
        """The body, unpacked; it counts for as long as the context lasts.

        Args:
            request: whose body has not been read.
            address: of the sender, or the network that counts as one.

        Raises:
            Refused: too large, too slow, damaged, packed in a way that is not known, or there is no
                room for it now.
        """
        if (request.content_length or 0) > self._max_bytes:
            raise self._too_large()
        body = Body(self, address)
        try:
            await self._fill(body, request)
            yield body
        finally:
            body.drop()

    def take(self, address: str, count: int) -> None:
        """Count bytes that are about to be kept.

        Raises:
            Refused: there is no room for them now.
        """
        if (
            self.held_bytes + count > self._together_bytes
            or self._held[address] + count > self._address_bytes
        ):
            raise _full()
        self._count(address, count)

    def exchange(self, address: str, count: int, other: int) -> None:
        """Count other bytes instead of some that were taken.

        Raises:
            Refused: there is no room for them beside those of others; then none is taken. Who has
                the only body, of all or of an address, is not refused for what it turns into.
        """
        self._count(address, -count)
        together, of_address = self.held_bytes, self._held[address]
        if (together and together + other > self._together_bytes) or (
            of_address and of_address + other > self._address_bytes
        ):
            raise _full()
        self._count(address, other)

    def give_back(self, address: str, count: int) -> None:
        """Count bytes no more."""
        self._count(address, -count)

    def _count(self, address: str, change: int) -> None:
        self.held_bytes += change
        self._held[address] += change
        if not self._held[address]:
            del self._held[address]

    async def _fill(self, body: "Body", request: web.Request) -> None:
        came = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                async for part in request.content.iter_any():
                    body.grow(len(part))
                    came += part
                    if len(came) > self._max_bytes:
                        raise self._too_large()
        except TimeoutError as error:
            raise Refused(408, f"the body takes longer than {self._seconds:g} s") from error
        except (web.RequestPayloadError, ConnectionError) as error:
            raise Refused(400, "the body is broken off or damaged") from error
        try:
            unpacking = unpacking_of(request.headers.get("Content-Encoding", ""))
            body.text = bytes(came if unpacking is None else self._unpacked(body, unpacking, came))
        except UnknownPacking as error:
            raise Refused(415, str(error)) from error
        except Damaged as error:
            raise Refused(400, f"the body cannot be unpacked: {error}") from error
        body.becomes(len(body.text))

    def _unpacked(self, body: "Body", unpacking: Unpacking, came: bytearray) -> bytearray:
        text = bytearray()
        for begin in range(0, len(came), _PART_BYTES):
            for piece in unpacking.feed(bytes(came[begin : begin + _PART_BYTES])):
                if len(text) + len(piece) > self._max_bytes:
                    raise self._too_large()
                body.grow(len(piece))
                text += piece
        unpacking.close()
        return text

    def _too_large(self) -> Refused:
        return Refused(413, f"at most {self._max_bytes} bytes are taken, unpacked")


class Body:
    """What one request has posted, or what was made of it."""

    def __init__(self, bodies: Bodies, address: str) -> None:
        self._bodies = bodies
        self._address = address
        self._bytes = 0
        self.text = b""

    async def turned_into(self, work: Callable[[bytes], T], size_of: Callable[[T], int]) -> T:
        """What is made of the text, which then is there no more.

        Args:
            work: takes the text, and keeps none of it; where that is long, in a thread.
            size_of: how many bytes what it makes takes.

        Raises:
            Refused: there is no room for it; or by the work.
        """
        if len(self.text) < SHORT_BYTES:
            made = work(self._taken())
        else:
            async with self._bodies.turn:
                made = await asyncio.to_thread(lambda: work(self._taken()))
        self.becomes(size_of(made))
        return made

    def grow(self, count: int) -> None:
        """Take so many bytes more.

        Raises:
            Refused: there is no room for them now.
        """
        self._bodies.take(self._address, count)
        self._bytes += count

    def becomes(self, count: int) -> None:
        """Take so many bytes instead of those that it has.

        Raises:
            Refused: there is no room for them now.
        """
        before, self._bytes = self._bytes, 0
        self._bodies.exchange(self._address, before, count)
        self._bytes = count

    def drop(self) -> None:
        """Keep nothing."""
        self._bodies.give_back(self._address, self._bytes)
        self.text, self._bytes = b"", 0

    def _taken(self) -> bytes:
        text, self.text = self.text, b""
        return text


def _full() -> Refused:
    return Refused(503, "too much is being received at once", RETRY_SECONDS)
