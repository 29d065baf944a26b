"""The network between workers and servers, as proxies that can stall, slow and cut it.

Kafka clients are told apart by the client id in their first request, and so are the nodes of a
cluster, which are each other's clients; PostgreSQL's by the folder of the socket that each has.
"""

import asyncio
import contextlib
import random
import re
import struct
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, Literal

_CHUNK: Final = 256 * 1024
_HEAD: Final = struct.Struct(">ihhih")
"""Of a Kafka request: length, kind, version, number, length of the client id."""

CLIENT_PREFIX: Final = "freshet-"
"""Before the instance's name in every client id."""

_NODE: Final = re.compile(r"(?:broker-|raft-client-)?(\d+)(?:-.*)?")
"""The client id of a node of a cluster where it is another one's client."""

_TURNS: Final = 5
"""Of the loop, from where a connection is accepted to where somebody serves it; and some more."""

RESEND_SECONDS: Final = 0.3
"""What is lost on its way is sent again after about so long."""

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

Direction = Literal["both", "there", "back"]
"""From the client to the server, from the server to the client, or both."""


class _Way:
    """What goes in one direction: it flows, is slow, or stands."""

    def __init__(self) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self.seconds = 0.0
        self.lost = 0.0
        self._luck = random.Random(0)  # noqa: S311 - when what is lost is no secret

    def pause(self) -> float:
        """How long the next bytes are under way, in seconds."""
        again = self._luck.random() < self.lost
        return self.seconds * self._luck.uniform(0.5, 1.5) + RESEND_SECONDS * again


class Link:
    """The connections of one worker, or of whoever else: they flow, stall or are cut together."""

    def __init__(self) -> None:
        self.is_cut = False
        self._there, self._back = _Way(), _Way()
        self._open: set[asyncio.StreamWriter] = set()

    def stall(self, direction: Direction = "both") -> None:
        """Let nothing through; connections stay."""
        for way in self._ways(direction):
            way.flows.clear()

    def slow(self, seconds: float, lost: float = 0.0) -> None:
        """Let everything through, but later.

        Args:
            seconds: that bytes are under way, more or less.
            lost: share of what is lost on its way, and sent again by whoever sent it.
        """
        for way in self._ways("both"):
            way.seconds, way.lost = seconds, lost

    def cut(self) -> None:
        """End all connections, and end new ones at once."""
        self.is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def restore(self) -> None:
        """Let everything through again."""
        self.is_cut = False
        self.slow(0.0)
        for way in self._ways("both"):
            way.flows.set()

    def _ways(self, direction: Direction) -> list[_Way]:
        chosen = {"both": [self._there, self._back], "there": [self._there], "back": [self._back]}
        return chosen[direction]

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
            asyncio.ensure_future(_carry(client[0], server[1], self._there)),
            asyncio.ensure_future(_carry(server[0], client[1], self._back)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open -= writers
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, way: _Way) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(_CHUNK):
            if pause := way.pause():
                await asyncio.sleep(pause)
            if not way.flows.is_set():
                await way.flows.wait()
                if source.at_eof():
                    return  # given up meanwhile: what was on its way is lost
            target.write(chunk)
            await target.drain()


class Network:
    """All links, by the name of the client (a worker's instance, or a server's) and of the server:
    `scheduler-1@kafka-2`, `kafka-1@kafka-2`."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def link(self, name: str) -> Link:
        """The link of a worker to a server."""
        return self._links.setdefault(name, Link())

    def links_of(self, client: str, servers: Iterable[str]) -> list[Link]:
        """The links of a client to some servers."""
        return [self.link(f"{client}@{server}") for server in servers]

    def links_around(self, server: str, others: Iterable[str]) -> list[Link]:
        """All links of a server: to and from the others, and of whoever has come to it so far."""
        for other in others:
            self.link(f"{server}@{other}")
            self.link(f"{other}@{server}")
        return [link for name, link in self._links.items() if server in name.split("@")]

    def restore(self) -> None:
        """Let everything through again."""
        for link in self._links.values():
            link.restore()

    async def open_kafka(
        self, port: int, broker_port: int, server: str = "kafka", host: str = "127.0.0.1"
    ) -> None:
        """Listen for Kafka clients, and for other nodes of a broker's cluster.

        Args:
            port: on which they come.
            broker_port: the broker's own.
            server: its name.
            host: where both listen.
        """

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection(host, broker_port)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                head, name = await _kafka_client(reader)
                await self._serve(self.link(f"{name}@{server}"), (reader, writer), connect, head)

        listening = await asyncio.start_server(self._tracked(accept), host, port)
        self._servers.append(listening)

    async def open_postgres(
        self, name: str, folder: Path, socket: Path, server: str = "postgres"
    ) -> None:
        """Listen for one client's connections to PostgreSQL, on a socket in a folder of its own.

        Args:
            name: the client's.
            folder: of the socket on which it comes.
            socket: PostgreSQL's own.
            server: its name.
        """

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_unix_connection(str(socket))

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(self.link(f"{name}@{server}"), (reader, writer), connect, b"")

        path = str(folder / socket.name)
        self._servers.append(await asyncio.start_unix_server(self._tracked(accept), path))

    async def close(self) -> None:
        """Close everything."""
        # Nobody else is let in, and who was just now begins first: of a server that is closed
        # between the two, asyncio leaves the connection open.
        for server in self._servers:
            for listening in server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
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
    text = name.decode(errors="replace").removeprefix(CLIENT_PREFIX)
    node = _NODE.fullmatch(text)
    return head + name, f"kafka-{node[1]}" if node else text
