"""The workers' web server: who keeps connections open takes them from nobody."""

import asyncio
import contextlib

import pytest

from deploy.local.process import free_port
from shared.runtime import web as module
from shared.runtime.settings import Settings, SettingsError
from shared.runtime.worker import WorkerService, make_app

READY = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Idle(WorkerService):
    """A worker that does nothing."""

    async def open(self):
        """Nothing."""

    async def close(self):
        """Nothing."""

    def loops(self):
        """None."""
        return []

    def not_ready(self):
        """It is."""

    def progressed_at(self):
        """Never."""
        return 0.0


@contextlib.asynccontextmanager
async def listening():
    """The port of a worker's web server."""
    settings = Settings(http_port=free_port())
    web = make_app("ingester", Idle(settings)).web
    web.init_server()
    await web.start_server()
    try:
        async with asyncio.timeout(30):
            yield settings.http_port
    finally:
        await web.stop_server()


@contextlib.asynccontextmanager
async def connected(port, said=b""):
    """A connection over which something was said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_port_that_another_process_has_is_named_with_its_setting():
    taken = free_port()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", taken)
    web = make_app("ingester", Idle(Settings(http_port=taken))).web
    web.init_server()
    async with server:
        with pytest.raises(SettingsError, match=rf"port {taken}: .*FRESHET_HTTP_PORT"):
            await web.start_server()
    await web.stop_server()


async def test_who_opens_very_many_connections_is_told_so_and_others_come_in_again(monkeypatch):
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 3)
    async with listening() as port:
        async with connected(port), connected(port), connected(port) as (reader, writer):
            async with connected(port) as (refused, _):
                assert (await refused.read()).startswith(b"HTTP/1.1 503 ")
            writer.write(READY)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        status = b""
        while b" 200 " not in status:  # until the server has seen that they are gone
            async with connected(port, READY) as (reader, _):
                status = await reader.readline()


@pytest.mark.parametrize("said", [b"", READY[:20], READY, READY + READY[:20]])
async def test_a_connection_that_asks_for_nothing_is_closed(monkeypatch, said):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.2)
    async with listening() as port, connected(port, said) as (reader, _):
        await reader.read()  # to its end
