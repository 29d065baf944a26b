"""What is answered: IndexNow, weblogs' pings, CloudEvents and JSON lines."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import structlog
from aiohttp import web

from services.receiver import metrics
from services.receiver.bodies import Bodies
from services.receiver.events import read_events
from services.receiver.indexnow.engines import Engines
from services.receiver.indexnow.keys import KeyBook, Verdict
from services.receiver.indexnow.submission import (
    KeyFile,
    Submission,
    key_file,
    of_body,
    of_query,
    pings_within,
)
from services.receiver.lines import Read, read_lines
from services.receiver.rates import Rates
from services.receiver.refusing import Refused, too_fast
from services.receiver.sending import Sender, bytes_of
from services.receiver.tokens import Tokens
from services.receiver.visitors import Proxies, address_of, visitor_of
from services.receiver.weblogs import answer, read_call
from shared.runtime.pings import Ping
from shared.runtime.settings import Settings
from shared.runtime.signal_bounds import SignalBounds

log = structlog.get_logger(__name__)

INDEXNOW: Final = "indexnow"
INDEXNOW_UNCHECKED: Final = "indexnow-unchecked"
"""Of keys that are still being looked for: what such signals are worth is learned by itself."""

INDEXNOW_SHARED: Final = "indexnow-shared"
"""Passed on by search engines."""

WEBLOG_PING: Final = "weblog-ping"

OWN_SOURCES: Final = frozenset({INDEXNOW, INDEXNOW_UNCHECKED, INDEXNOW_SHARED, WEBLOG_PING})

_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the pages work with."""

    settings: Settings
    sender: Sender
    bodies: Bodies
    keys: KeyBook
    engines: Engines
    rates: Rates
    tokens: Tokens
    proxies: Proxies


class _Asked(NamedTuple):
    """A submission of which only the pings are left."""

    host: str
    file: KeyFile | None
    """That must hold its key; None: an engine shares it, and has looked at the key."""
    pings: list[Ping]


class Pages:
    """The pages of those who push."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock = parts.settings.clock()
        self._bounds = SignalBounds.of(parts.settings, self._clock)

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [
            # The documentation writes it both ways.
            *(
                web.route(method, path, self.indexnow)
                for path in ("/indexnow", "/IndexNow")
                for method in ("GET", "POST")
            ),
            web.post("/RPC2", self.weblog),
            web.post("/events", self.events),
            web.post("/signals", self.signals),
        ]

    async def indexnow(self, request: web.Request) -> web.StreamResponse:
        """IndexNow: one URL by GET, many by POST."""
        address = address_of(request, self._parts.proxies)
        may_share = "noreping" in request.query
        if request.method != "POST":
            asked = self._asked(of_query(request.query), address, may_share=may_share)
            return await self._submitted(asked, address)
        async with self._parts.bodies.read(request, visitor_of(address)) as body:
            asked = await body.turned_into(
                lambda text: self._asked(of_body(text), address, may_share=may_share),
                lambda asked: bytes_of(asked.pings),
            )
            return await self._submitted(asked, address)

    def _asked(self, submission: Submission, address: str, *, may_share: bool) -> _Asked:
        host, file, folder = submission.host, None, "/"
        is_shared = may_share and self._parts.engines.known(host, submission.key, address)
        if not is_shared:
            file = key_file(submission)
            folder = file.folder
        own = None if is_shared else host
        pings = pings_within(
            submission.urls, own, folder, allow_private=self._bounds.allow_private_hosts
        )
        return _Asked(host, file, pings)

    async def _submitted(self, asked: _Asked, address: str) -> web.StreamResponse:
        host, file, pings = asked
        if file is None:
            self._take(f"engine {host}", len(pings))
            await self._parts.sender.send(INDEXNOW_SHARED, pings)
            return web.Response(text="taken\n")
        verdict = await self._parts.keys.verdict(file, visitor_of(address))
        if verdict is Verdict.VALID:
            self._take(f"host {host}", len(pings))
            await self._parts.sender.send(INDEXNOW, pings)
            return web.Response(text="taken\n")
        if verdict is Verdict.PENDING:
            self._take(f"address {visitor_of(address)}", len(pings))
            await self._parts.sender.send(INDEXNOW_UNCHECKED, pings)
            return web.Response(status=202, text="taken; the key is being looked for\n")
        found = "does not hold the key" if verdict is Verdict.INVALID else "cannot be fetched"
        raise Refused(403, f"the key's file {file.urls[0]} {found}")

    async def weblog(self, request: web.Request) -> web.StreamResponse:
        """A weblog's ping; what is wrong with it is said in the method's own answer."""
        visitor = self._visitor(request)
        async with self._parts.bodies.read(request, visitor) as body:
            try:
                pings = await body.turned_into(partial(read_call, bounds=self._bounds), bytes_of)
            except Refused as refused:
                if refused.retry_seconds is not None:
                    raise
                return _of_weblog(str(refused), failed=True)
            self._take(f"address {visitor}", len(pings))
            await self._parts.sender.send(WEBLOG_PING, pings)
            return _of_weblog("Thanks for the ping.", failed=False)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """CloudEvents, of a source that has a token."""
        kind = request.headers.get("Content-Type", "")
        return await self._of_source(
            request,
            lambda text: read_events(kind, request.headers, text, self._bounds, self._clock.now()),
        )

    async def signals(self, request: web.Request) -> web.StreamResponse:
        """JSON lines, of a source that has a token."""
        return await self._of_source(
            request, lambda text: read_lines(text, self._bounds, self._clock.now())
        )

    async def _of_source(
        self, request: web.Request, reading: Callable[[bytes], Read]
    ) -> web.StreamResponse:
        source = self._parts.tokens.source_of(request.headers.get("Authorization", ""))
        async with self._parts.bodies.read(request, self._visitor(request)) as body:
            read = await body.turned_into(reading, lambda read: bytes_of(read.pings))
            self._take(f"source {source}", len(read.pings))
            await self._parts.sender.send(source, read.pings)
            status = 200 if read.pings or not read.refused else 400
            return web.json_response(read.answer(), status=status)

    def _visitor(self, request: web.Request) -> str:
        return visitor_of(address_of(request, self._parts.proxies))

    def _take(self, sender: str, count: int) -> None:
        wait = self._parts.rates.wait_for(sender, count, time.monotonic())
        if wait:
            raise too_fast(
                f"{sender} may send {self._parts.rates.per_second:g} URLs a second "
                "(FRESHET_RECEIVER_URLS_PER_SENDER_PER_SECOND)",
                wait,
            )


def _of_weblog(message: str, *, failed: bool) -> web.Response:
    return web.Response(
        body=answer(message, failed=failed), content_type="text/xml", charset="utf-8"
    )


@web.middleware
async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count and time; say why something is refused; a fault of ours is logged, and not told."""
    began = time.perf_counter()
    try:
        response = await handler(request)
    except Refused as refused:
        response = web.Response(status=refused.status, text=f"{refused}\n", headers=refused.headers)
    except web.HTTPException as error:
        response = web.Response(status=error.status, text=f"{error.reason}\n")
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    except Exception:
        log.exception("a page of the receiver failed", path=request.path)
        response = web.Response(status=500, text="it failed; it may be tried again\n")
    response.headers.update(_HEADERS)
    if not request.content.is_eof():
        # What nobody reads must not be taken for the next request, nor waited for.
        response.force_close()
    resource = request.match_info.route.resource
    page = resource.canonical if resource is not None else "other"
    metrics.REQUESTS.labels(page, str(response.status)).inc()
    metrics.ANSWER_SECONDS.observe(time.perf_counter() - began)
    return response
