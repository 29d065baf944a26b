"""What comes over a WebSocket: many events together, in bounded memory, and how it ended."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import aiohttp

from services.poller.sse import MOST_BYTES, TooLong

AT_ONCE: Final = 500
"""Events that are published together."""

GATHER_SECONDS: Final = 0.2

_EVENTS: Final = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY)
_GOOD_ENDS: Final = frozenset({0, aiohttp.WSCloseCode.OK, aiohttp.WSCloseCode.GOING_AWAY})

Part = list[tuple[bytes, str | None]]
"""Events, each with its id where the transport has ids."""

Socket = aiohttp.ClientWebSocketResponse[Literal[False]]
"""Whose texts are bytes: one that is no text is a bad event, and not the end of its stream."""


class Gathered(NamedTuple):
    """What came together."""

    part: Part
    size: int
    """Bytes, those of events that were too long included."""
    last: Any = None
    """The message after which none comes; None: there may be more."""


async def gather(
    socket: Socket, place_of: Callable[[bytes], str], silent_seconds: float
) -> Gathered:
    """The next event, and those that come right after it.

    Args:
        socket: that is open.
        place_of: reads the place of an event that is too long: that is all that is kept of it.
        silent_seconds: for so long nothing may come.

    Raises:
        TimeoutError: nothing has come.
    """
    part: Part = []
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(silent_seconds) as patience:
            while len(part) < AT_ONCE and size <= MOST_BYTES:
                message = await socket.receive()
                if message.type not in _EVENTS:
                    return Gathered(part, size, message)
                data: bytes = message.data
                size += len(data)
                part.append((data, None) if len(data) <= MOST_BYTES else (b"", place_of(data)))
                if len(part) == 1:
                    patience.reschedule(asyncio.get_running_loop().time() + GATHER_SECONDS)
    if not part:
        raise TimeoutError("it says nothing")
    return Gathered(part, size)


def check_end(socket: Socket, last: Any, most_bytes: int) -> None:
    """Tell a connection that ended as it should from one that did not.

    Args:
        socket: that is closed.
        last: its last message.
        most_bytes: that one could have.

    Raises:
        ValueError: says how it ended; so does `OSError` or `aiohttp.ClientError`.
    """
    fault = last.data if last.type is aiohttp.WSMsgType.ERROR else None
    if last.type is aiohttp.WSMsgType.CLOSED:
        fault = socket.exception()
        if not isinstance(fault, TimeoutError):
            # Whatever else there is comes of our own last words, which nobody hears any more.
            raise ValueError("it is cut off")
    if isinstance(fault, OSError | aiohttp.ClientError):
        raise fault
    if getattr(fault, "code", None) == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
        raise TooLong(f"an event has more than {most_bytes} bytes")
    if fault is not None:
        raise ValueError(str(fault) or type(fault).__name__)
    if last.type is aiohttp.WSMsgType.CLOSE and last.data not in _GOOD_ENDS:
        raise ValueError(f"it ends with {last.data}: {last.extra or ''}".rstrip(": "))
