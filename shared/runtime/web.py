"""The rules of a worker's web server: it is read, never written to, whatever is asked; and who
keeps connections open takes none from the broker and the database."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address
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

_AUTHORITY: Final = re.compile(r"(?:(\[[^\]]*\])|([^:]*))(:\d+)?")
_PORT_OF_HTTP: Final = 80

_MISDIRECTED: Final = (
    "this worker listens on loopback alone, and answers under the name localhost and under "
    "addresses: open it as localhost. To let others in let FRESHET_HTTP_HOST be an address of this "
    "machine; a proxy in front on a port of its own has to send Host: localhost\n"
)

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


def only_by_own_names(port: int) -> Any:
    """A middleware that refuses what came by a name that may be a stranger's (`may_be_rebound`)."""

    @web.middleware
    async def refusing(request: web.Request, handler: Handler) -> web.StreamResponse:
        if may_be_rebound(request.headers.get("Host", ""), port):
            raise web.HTTPMisdirectedRequest(text=_MISDIRECTED, headers=_HEADERS)
        return await handler(request)

    return refusing


def may_be_rebound(authority: str, port: int) -> bool:
    """Whether what a server on loopback answers may be read by a stranger's page.

    A page on the web may let its own name lead to loopback once it is open in a browser there, and
    then read all that the browser gets under this name and its port (DNS rebinding). Addresses are
    no names, and localhost is nobody's. Browsers name the port, unless it is 80: a name without one
    is that of a proxy in front, on port 80 or 443.

    Args:
        authority: `Host` of the request; empty: no browser has sent it.
        port: where the server listens.
    """
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return True
    in_brackets, name, named_port = match.groups()
    name = name.lower().rstrip(".") if name else ""
    if in_brackets or not name or (named_port is None and port != _PORT_OF_HTTP):
        return False
    with contextlib.suppress(ValueError):
        ip_address(name)
        return False
    return name != "localhost" and not name.endswith(".localhost")


def web_options(host: str, port: int) -> dict[str, Any]:
    """Options of aiohttp's application.

    Args:
        host: where it listens. On other addresses than loopback it goes by any name: those of
            machines and services lead there.
        port: where it listens.
    """
    middlewares = [only_by_own_names(port), read_only] if _is_loopback(host) else [read_only]
    return {"client_max_size": MAX_BODY_BYTES, "middlewares": middlewares}


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


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
