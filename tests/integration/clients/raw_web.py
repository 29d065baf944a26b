"""Hosts on loopback that send what they are told to, byte by byte, be it HTTP or not."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RawHost:
    """A host, and what it answers."""

    def __init__(self) -> None:
        self.name = ""
        self.answers: dict[str, bytes] = {}
        """Path → the answer, after which the connection is closed; any other path: 404."""
        self.stalled: set[str] = set()
        """Paths whose connections stay open after that, with nothing more to come."""
        self.seen: Counter[str] = Counter()
        """Requests by path."""

    def url(self, path: str) -> str:
        """Of a page."""
        return f"http://{self.name}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which has one request."""
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            self.seen[path] += 1
            writer.write(self.answers.get(path) or answer(404))
            if path in self.stalled:
                await reader.read()  # until the crawler hangs up
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def answer(status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> bytes:
    """An answer as it is sent.

    Args:
        status: of HTTP.
        body: what comes of it.
        length: that it says; None: that of the body.
        headers: more of them, `_` for `-`.
    """
    said = {"Content-Length": str(len(body) if length is None else length), "Connection": "close"}
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} So", *(f"{name}: {value}" for name, value in said.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def raw_host() -> AsyncIterator[RawHost]:
    """A host that is up in the block."""
    host = RawHost()
    async with await asyncio.start_server(host.answer, "127.0.0.1", 0) as server:
        host.name = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield host
