"""The network between workers and servers, as proxies that can stall and cut it for one worker.

Kafka clients are told apart by the client id in their first request, PostgreSQL's by the folder of
the socket that each worker is given.
"""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

_CHUNK: Final = 256 * 1024
_HEAD: Final = struct.Struct(">ihhih")
"""Of a Kafka request: length, kind, version, number, length of the client id."""

CLIENT_PREFIX: Final = "freshet-"
"""Before the instance's name in every client id."""

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Link:
    """The connections of one worker, or of whoever else: they flow, stall or are cut together."""

    def __init__(self) -> None:
        self.is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: set[asyncio.StreamWriter] = set()

    def stall(self) -> None:
        """Let nothing through; connections stay."""
        self._flows.clear()

    def cut(self) -> None:
        """End all connections, and end new ones at once."""
        self.is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def restore(self) -> None:
        """Let everything through again."""
        self.is_cut = False
        self._flows.set()

    async def join(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Carry bytes both ways until one side ends."""
        writers = {client[1], server[1]}
        self._open |= writers
        if self.is_cut:
            self.cut()
        ways = [
            asyncio.ensure_future(self._carry(client[0], server[1])),
            asyncio.ensure_future(self._carry(server[0], client[1])),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open -= writers
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK):
                if not self._flows.is_set():
                    await self._flows.wait()
                    if source.at_eof():
                        return  # given up meanwhile: what was on its way is lost
                target.write(chunk)
                await target.drain()


class Network:
    """All links, by the name of the worker (its instance) and the server: `scheduler-1@kafka`."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def link(self, name: str) -> Link:
        """The link of a worker to a server."""
        return self._links.setdefault(name, Link())

    def restore(self) -> None:
        """Let everything through again."""
        for link in self._links.values():
            link.restore()

    async def open_kafka(self, port: int, broker_port: int, host: str = "127.0.0.1") -> None:
        """Listen for Kafka clients."""

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection(host, broker_port)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                head, name = await _kafka_client(reader)
                await self._serve(self.link(f"{name}@kafka"), (reader, writer), connect, head)

        server = await asyncio.start_server(self._tracked(accept), host, port)
        self._servers.append(server)

    async def open_postgres(self, name: str, folder: Path, socket: Path) -> None:
        """Listen for one worker's connections to PostgreSQL, on a socket in a folder of its own."""

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_unix_connection(str(socket))

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(self.link(f"{name}@postgres"), (reader, writer), connect, b"")

        server = await asyncio.start_unix_server(self._tracked(accept), str(folder / socket.name))
        self._servers.append(server)

    async def close(self) -> None:
        """Close everything."""
        for server in self._servers:
            server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _tracked(
        self, accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
            try:
                await accept(reader, writer)
            except (OSError, asyncio.CancelledError):
                return
            finally:
                writer.transport.abort()

        return serve

    async def _serve(
        self,
        link: Link,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        connect: Connect,
        head: bytes,
    ) -> None:
        if link.is_cut:
            return
        server = await connect()
        try:
            server[1].write(head)
            await link.join(client, server)
        finally:
            server[1].transport.abort()


async def _kafka_client(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """The beginning of a connection's first request, and whose it is."""
    head = await reader.readexactly(_HEAD.size)
    length = _HEAD.unpack(head)[-1]
    name = await reader.readexactly(max(length, 0))
    return head + name, name.decode(errors="replace").removeprefix(CLIENT_PREFIX)
