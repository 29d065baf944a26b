"""The port that strangers talk to.

Not Faust's web server: that one has health and metrics, which are nobody else's business, answers
nothing but reading, and can limit neither connections nor their time. Here a connection that is one
too many, of all or of its address, is told so and closed; one that says nothing, or its head too
slowly, is closed by aiohttp after `IDLE_SECONDS`.
"""

import asyncio
from collections import Counter
from collections.abc import Container
from typing import Final

from aiohttp import web

from services.receiver import metrics
from services.receiver.visitors import visitor_of

IDLE_SECONDS: Final = 15.0
STOP_SECONDS: Final = 3.0
"""Requests under way are given so long at the stop."""

LINGER_SECONDS: Final = 2.0

ADDRESS_SHARE: Final = 0.1
"""The part of all connections that one address may have."""

BACKLOG: Final = 1024

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class Door:
    """Listens, and lets as many in as there is room for."""

    def __init__(
        self,
        application: web.Application,
        host: str,
        port: int,
        most_connections: int,
        proxies: Container[str],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Make it; it does not listen yet.

        Args:
            application: what answers.
            host: address to listen on.
            port: to listen on.
            most_connections: of all.
            proxies: addresses that many come through.
            idle_seconds: how long a connection may take to ask for something.
        """
        self._runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=idle_seconds,
            # Bodies are unpacked by us, within limits.
            auto_decompress=False,
            # What is left of a body that was refused is thrown away for so long.
            lingering_time=LINGER_SECONDS,
        )
        self._host = host
        self._port = port
        self._most_connections = most_connections
        self._most_of_visitor = max(int(most_connections * ADDRESS_SHARE), 1)
        self._proxies = proxies
        self._open = 0
        self._of_visitor: Counter[str] = Counter()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(
            self._knock, self._host, self._port, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Let nobody in any more, and finish what is under way."""
        if self._server is not None:
            self._server.close()
            server = self._runner.server
            if server is not None:
                await server.shutdown(STOP_SECONDS)
        await self._runner.cleanup()

    def enter(self, address: str) -> bool:
        """Count a connection in; whether there is room for it."""
        visitor = visitor_of(address)
        full = self._open >= self._most_connections or (
            address not in self._proxies and self._of_visitor[visitor] >= self._most_of_visitor
        )
        if full:
            metrics.CONNECTIONS_REFUSED.inc()
            return False
        self._open += 1
        self._of_visitor[visitor] += 1
        metrics.CONNECTIONS.set(self._open)
        return True

    def leave(self, address: str) -> None:
        """Count it out."""
        self._open -= 1
        visitor = visitor_of(address)
        self._of_visitor[visitor] -= 1
        if not self._of_visitor[visitor]:
            del self._of_visitor[visitor]
        metrics.CONNECTIONS.set(self._open)

    def _knock(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the door is not open")
        return _Visitor(self, server())


class _Visitor(asyncio.Protocol):
    """A connection, counted; what comes over it goes to aiohttp."""

    def __init__(self, door: Door, inner: asyncio.Protocol) -> None:
        self._door = door
        self._inner = inner
        self._address: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        name = transport.get_extra_info("peername")
        address = str(name[0]) if name else ""
        if self._door.enter(address):
            self._address = address
            self._inner.connection_made(transport)
        elif isinstance(transport, asyncio.Transport):
            transport.write(_FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self._door.leave(self._address)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._address is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._address is not None else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
