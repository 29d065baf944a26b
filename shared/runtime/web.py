"""The rules of a worker's web server: it is read, never written to, whatever is asked; and who
keeps connections open takes none from the broker and the database."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import structlog
from aiohttp import web
from faust.web.drivers.aiohttp import Web

from shared.runtime.settings import SettingsError

log = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 1024
"""No request has a body; aiohttp's own limits (8 kB) bound the rest of it."""

MOST_CONNECTIONS: Final = 256
"""At a time, or some more that come in one go. A process may have a thousand files open by default,
and needs some for its work: when none is left, the loop does hardly anything but say so."""

IDLE_SECONDS: Final = 15.0
"""A connection may take so long to ask for something; aiohttp's default is an hour. Prometheus,
which comes every 15 or 30 seconds, connects anew."""

READING: Final = frozenset({"GET", "HEAD"})

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def read_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what is no reading; and a fault of ours is logged here, and not told to strangers."""
    if request.method not in READING:
        raise web.HTTPMethodNotAllowed(request.method, sorted(READING), headers=_HEADERS)
    try:
        response = await handler(request)
    except web.HTTPException:
        raise
    except Exception:
        log.exception("a page of the web server failed", path=request.path)
        return web.Response(status=500, text="it failed; the log says why\n", headers=_HEADERS)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def web_options() -> dict[str, Any]:
    """Options of aiohttp's application."""
    return {"client_max_size": MAX_BODY_BYTES, "middlewares": [read_only]}


@contextlib.contextmanager
def listening(host: str, port: int, name: str) -> Iterator[None]:
    """Say which settings are meant where nobody can listen there.

    Args:
        host: by the setting `http_host`.
        port: where to listen.
        name: the setting that says so.

    Raises:
        SettingsError: instead of what failed.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise SettingsError(
            f"nobody can listen at {host} on port {port}: {error}. Another process may have it: "
            f"see FRESHET_{name.upper()} and FRESHET_HTTP_HOST"
        ) from error


class _Full(asyncio.Protocol):
    """A connection too many: it is told so, and closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
                b"Connection: close\r\n\r\n"
            )
            transport.close()


class WebServer(Web):  # type: ignore[misc]  # faust is untyped
    """Faust's web server, with room for so many connections, none of which may idle."""

    def __init__(self, app: Any, **options: Any) -> None:
        """Make it for an app; it does not listen yet."""
        super().__init__(app, **options)
        self._runner = web.AppRunner(self.web_app, access_log=None, keepalive_timeout=IDLE_SECONDS)
        self._listener: asyncio.Server | None = None

    async def start_server(self) -> None:
        """Listen.

        Raises:
            SettingsError: the port is taken, or the address is none of this machine.
        """
        await self._runner.setup()
        host, port = self.app.conf.web_bind, self.app.conf.web_port
        with listening(host, port, "http_port"):
            self._listener = await asyncio.get_running_loop().create_server(
                self._let_in, host, port
            )

    async def stop_server(self) -> None:
        """Let nobody in any more, and finish what is under way."""
        if self._listener is not None:
            self._listener.close()
        await super().stop_server()

    def _let_in(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None or len(server.connections) >= MOST_CONNECTIONS:
            return _Full()
        return server()
