"""The rules of a worker's web server: it is read, never written to, whatever is asked."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiohttp import web

log = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 1024
"""No request has a body; aiohttp's own limits (8 kB) bound the rest of it."""

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
