"""Reading one stream: whatever is cut, it goes on after the last event that the broker has."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

import aiohttp
import structlog
from yarl import URL

from services.poller import metrics
from services.poller.accounts import StreamAccount
from services.poller.cursors import Cursors
from services.poller.formats import Said, place_reader, read_event
from services.poller.sites.prices import Prices
from services.poller.sockets import Part, check_end, gather
from services.poller.sse import MOST_PASSED_OVER, EventParser
from services.poller.streams import Stream
from services.poller.walls import Walls
from shared.runtime.fetching import HEADER_BYTES
from shared.runtime.pings import Ping
from shared.runtime.wall_time import WALL

log = structlog.get_logger(__name__)

SILENT_SECONDS: Final = 90.0
"""A stream that says nothing for so long is connected to anew."""

GOODBYE_SECONDS: Final = 1.0
"""A server has so long to answer a close; who stops does not wait for what it still sends."""

LONGEST_WAIT_SECONDS: Final = 60.0
STORED_SECONDS: Final = 1.0
"""How often the place where a stream stands is written down; what came since is read again."""

MOST_CURSOR: Final = 4096
"""Characters of a place; servers take no longer line of headers than about twice that."""

_GONE: Final = frozenset({400, 404, 410, 416})
"""Answers to a place that the server does not have any more."""

Publish = Callable[[str, Sequence[Ping]], Awaitable[None]]
"""(Source, pings): returns when the broker has them."""


class StreamReader:
    """Reads one stream for as long as it is let."""

    def __init__(
        self,
        stream: Stream,
        cursors: Cursors,
        prices: Prices,
        publish: Publish,
        wait_seconds: float,
        user_agent: str,
    ) -> None:
        """Make it.

        Args:
            stream: which.
            cursors: where each stream stands.
            prices: by which it is told what its signals are worth.
            publish: waits for the broker.
            wait_seconds: until the first attempt to connect again.
            user_agent: who we say that we are.
        """
        self._stream = stream
        self._cursors = cursors
        self._publish = publish
        self._wait_seconds = wait_seconds
        self._user_agent = user_agent
        self._read = stream.reader()
        self._place_of = place_reader(stream.place)
        self._cursor = ""
        self._is_refused = False
        """Whether the server has just refused our place, and is asked without it."""
        self._account = StreamAccount(stream.source, stream.url, prices, WALL.now())
        self._stored_at = time.monotonic()

    async def run(self) -> None:
        """Read, again and again."""
        self._cursor = await self._cursors.load(self._stream.source)
        wait = self._wait_seconds
        while True:
            before = self._cursor
            reason = await self._attempt()
            if self._is_refused:
                # It may have forgotten it, or be away as a whole: then our place is still good.
                self._account.disconnected(reason)
                reason = await self._attempt()
                self._is_refused = False
            self._account.disconnected(reason)
            await self._store()
            moved = self._cursor != before or self._account.has_events
            wait = self._wait_seconds if moved else wait
            log.info("a stream is connected to anew", source=self._stream.source, reason=reason)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def _attempt(self) -> str:
        """Read over one connection; why it is over."""
        self._account.connecting()
        try:
            await self._follow()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return in_words(error)
        finally:
            metrics.CONNECTED.labels(self._stream.source).set(0)
        return "it ended"

    async def _follow(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=SILENT_SECONDS)
        headers = {"User-Agent": self._user_agent}
        walls = Walls()
        async with aiohttp.ClientSession(
            timeout=timeout,
            headers=headers,
            connector=aiohttp.TCPConnector(socket_factory=walls.socket),
            trace_configs=[walls.trace()],
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        ) as client:
            parts = self._messages(client) if self._stream.is_websocket else self._events(client)
            async with contextlib.aclosing(parts):
                async for part in parts:
                    await self._take(part)

    async def _events(self, client: aiohttp.ClientSession) -> AsyncGenerator[Part, None]:
        headers = {"Accept": "text/event-stream"}
        if self._place:
            headers["Last-Event-ID"] = self._place
        async with client.get(self._stream.url, headers=headers) as answer:
            self._check(answer.status)
            parser = EventParser()
            async for chunk in answer.content.iter_any():
                self._account.came(len(chunk))
                yield [(event.data, event.last_id) for event in parser.feed(chunk)]

    async def _messages(self, client: aiohttp.ClientSession) -> AsyncGenerator[Part, None]:
        url = URL(self._stream.url)
        if self._place:
            url = url.update_query({self._stream.cursor_query: self._place})
        try:
            async with client.ws_connect(
                url,
                heartbeat=SILENT_SECONDS / 3,
                timeout=aiohttp.ClientWSTimeout(ws_close=GOODBYE_SECONDS),
                max_msg_size=MOST_PASSED_OVER,
                decode_text=False,
            ) as socket:
                self._opened()
                last = None
                while last is None:
                    part, size, last = await gather(socket, self._place_of, SILENT_SECONDS)
                    self._account.came(size)
                    yield part
                check_end(socket, last, MOST_PASSED_OVER)
        except aiohttp.WSServerHandshakeError as error:
            self._check(error.status)
            raise

    @property
    def _place(self) -> str:
        """After what the server is asked for."""
        return "" if self._is_refused else self._cursor

    def _check(self, status: int) -> None:
        if status in _GONE and self._place:
            self._is_refused = True
        if status != 200:
            raise ValueError(f"it answers {status}")
        self._opened()

    def _opened(self) -> None:
        metrics.CONNECTED.labels(self._stream.source).set(1)
        if self._is_refused:
            self._account.lost()
            log.warning("a stream's server has forgotten our place", source=self._stream.source)
            self._cursor = ""

    async def _take(self, part: Part) -> None:
        """Publish what events say, then move on."""
        source, cursor = self._stream.source, self._cursor
        pings: dict[str, list[Ping]] = {}
        for data, own_id in part:
            said = self._said(data)
            places = (own_id or "", said.cursor)
            cursor = next((place for place in places if _can_be_said(place)), cursor)
            if said.ping is not None:
                pings.setdefault(f"{source}-bots" if said.by_bot else source, []).append(said.ping)
        for name, some in pings.items():
            await self._publish(name, some)
            self._account.published(name, some, WALL.now())
        self._cursor = cursor
        if time.monotonic() - self._stored_at >= STORED_SECONDS:
            await self._store()

    def _said(self, data: bytes) -> Said:
        try:
            said = read_event(self._read, data)
        except ValueError as error:
            self._account.event("bad")
            log.debug("an event of a stream is left out", reason=str(error))
            return Said(None)
        self._account.event("ignored" if said.ping is None else "signal")
        return said

    async def _store(self) -> None:
        self._stored_at = time.monotonic()
        if self._account.is_new:
            news = await self._account.news(WALL.now())
            if await self._cursors.store(self._cursor, *news):
                self._account.written()


def _can_be_said(cursor: str) -> bool:
    """Whether a server can be told of a place, and the database: with what no header may have, or
    what is too long for one, no attempt to connect again would ever come through."""
    return bool(cursor) and len(cursor) <= MOST_CURSOR and cursor.isprintable()


def in_words(error: Exception) -> str:
    """Why a stream could not be read, without its URL, which may have a secret in it."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"it answers {error.status}"
    if isinstance(error, TimeoutError):
        return "it says nothing, or does not answer"
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return "it leads to what is no URL"
    return str(error) or type(error).__name__
