"""Hostile senders beside a benchmark of the receiver."""

import asyncio
import contextlib
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import urlsplit

BOMB: Final = gzip.compress(b"\0" * 100_000_000)
"""A hundred megabytes in a tenth of one."""

ENTITIES: Final = b'<!DOCTYPE a [<!ENTITY b "c">]><methodCall>&b;</methodCall>'
NESTED: Final = b"[" * 1_000_000
SLOW_CONNECTIONS: Final = 300
PAUSE_SECONDS: Final = 0.05
_ADDRESS: Final = "127.0.0.66"
"""Where the attack comes from: a machine of its own, as far as limits can tell."""


def _posted(path: str, body: bytes, more: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {size}\r\n"
    return (head + more + "\r\n").encode() + body


HOSTILE: Final = {
    "bomb": _posted("/indexnow", BOMB, "Content-Encoding: gzip\r\n"),
    "entities": _posted("/RPC2", ENTITIES),
    "nested": _posted("/indexnow", NESTED),
    "huge": _posted("/indexnow", b"x" * 65536, length=100_000_000),
}
"""Kind → a request."""


@contextlib.asynccontextmanager
async def attacking(url: str) -> AsyncIterator[Counter[str]]:
    """Attack until the block ends: each hostile body twenty times a second, slow senders beside.

    Yields:
        what became of it: kind and status → how often; `slow` counts connections.
    """
    port = urlsplit(url).port or 0
    found: Counter[str] = Counter()
    tasks = [asyncio.ensure_future(_repeat(port, kind, found.update)) for kind in HOSTILE]
    tasks += [asyncio.ensure_future(_slow(port, found.update)) for _ in range(SLOW_CONNECTIONS)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(port: int, kind: str, note: Callable[[list[str]], None]) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await _connected(port)
            try:
                writer.write(HOSTILE[kind])
                head = await reader.readline()
                note([f"{kind} {head[9:12].decode() or 'closed'}"])
            finally:
                writer.close()
        await asyncio.sleep(PAUSE_SECONDS)


async def _slow(port: int, note: Callable[[list[str]], None]) -> None:
    """A byte of a head a second, again and again."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await _connected(port)
            note(["slow"])
            try:
                for byte in b"POST /indexnow HTTP/1.1\r\nX: " + b"x" * 100:
                    writer.write(bytes([byte]))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(), 1.0)
                        break
            finally:
                writer.close()
        await asyncio.sleep(1.0)


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(_ADDRESS, 0))
