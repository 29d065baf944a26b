"""TLS in front of a server that has none, for PostgreSQL's protocol.

The embedded PostgreSQL is built without OpenSSL. Clients cannot tell: they ask for TLS as they do,
shake hands with this, and everything after that is the real server's.
"""

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


class TlsFront:
    """Listens on a port of 127.0.0.1, in a thread of its own."""

    def __init__(self, socket_path: Path, certificate: Path, key: Path) -> None:
        self._socket_path = socket_path
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.in_clear = 0
        """Connections that did not ask for TLS; they are refused."""

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        """Close everything."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            await self._pass_on(reader, writer)
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readexactly(len(SSL_REQUEST))
        if asked != SSL_REQUEST:
            self.in_clear += 1
            return
        writer.write(b"S")
        await writer.start_tls(self._context)
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._socket_path)
        try:
            there = asyncio.create_task(_pump(reader, inner_writer))
            back = asyncio.create_task(_pump(inner_reader, writer))
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        finally:
            inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(64 * 1024):
        writer.write(data)
        await writer.drain()
