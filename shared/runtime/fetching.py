"""Fetching what strangers name: with limits to size, time and redirects, and from public places.

Whoever names a URL to be fetched may mean a machine behind our walls (SSRF), and a name that led to
a public address when it was looked up may lead to a private one a moment later (DNS rebinding). So
it is the address of each connection that is checked, when it is made: there is no second look-up.

What is sent packed though nobody asked for it, as stored objects are, is unpacked within the same
limits.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import ada_url
import aiohttp
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDictProxy
from yarl import URL

from shared.contracts.identity import BadUrl, identify, is_private_host
from shared.runtime.name_threads import NameThreads
from shared.runtime.unpacking import Damaged, UnknownPacking, unpacking_of

FETCH_SECONDS: Final = 10.0
"""For all of it, redirects included."""

MOST_REDIRECTS: Final = 5
"""As RFC 9309 asks of who reads robots.txt."""

HEADER_BYTES: Final = 64 * 1024
"""Of a line of an answer's headers: policies and cookies of real sites have more than the 8 kB that
clients take by default."""

CONNECTIONS: Final = 64
"""At a time; who comes when all are taken waits, and the wait counts as part of the fetch."""

CONNECTIONS_TO_HOST: Final = 4
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_OF_FORMS: Final = frozenset({307, 308})
"""After the others a browser would ask by GET, without the form."""

_FOR_GOOD: Final = frozenset({301, 308})
_CHUNK_BYTES: Final = 16 * 1024
_HEADERS: Final = {
    # What is packed small may be huge.
    "Accept-Encoding": "identity",
}

MayFollow = Callable[[str, str], bool]
"""(From, to) → whether a redirect is followed."""

Take = Callable[[bytes], Awaitable[None]]
"""Takes the parts of an answer as they come; what it raises ends the fetch."""

_TAKEN: Final = ("", "identity", "gzip", "x-gzip")
"""How what is taken as it comes may be packed: who takes it sees by itself what is gzip."""


class FetchFailed(Exception):
    """Nothing usable came; the text says why."""


class Unreached(FetchFailed):
    """Its server is away: it cannot be connected to, breaks off, or takes too long."""


class NotFollowed(FetchFailed):
    """It leads elsewhere: its redirects are not to be followed, or too many."""


class PrivateAddress(OSError):
    """The address is not on the public internet."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer."""

    url: str
    """Where it came from in the end."""
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    """Unpacked. Of an answer that is no success it is empty where it cannot be."""
    moved_to: str | None = None
    """What to ask from now on instead of what was asked: it has moved for good."""

    @property
    def says_nothing(self) -> bool:
        """Whether it does not tell what is there: the server is busy or in trouble, and a later
        answer may."""
        return self.status == 429 or not 200 <= self.status < 500


def is_inside(address_info: Any) -> bool:
    """Whether an address that is about to be connected to is not on the public internet.

    Args:
        address_info: as by `socket.getaddrinfo`.
    """
    family, address = address_info[0], address_info[4]
    return is_private_host(f"[{address[0]}]" if family == socket.AF_INET6 else address[0])


class Fetcher:
    """An HTTP client for URLs that others have named."""

    def __init__(
        self,
        *,
        allow_private: bool,
        seconds: float = FETCH_SECONDS,
        resolver: AbstractResolver | None = None,
        user_agent: str = "Freshet",
        connections: int = CONNECTIONS,
        connections_to_host: int = CONNECTIONS_TO_HOST,
    ) -> None:
        """Make a client that is not started yet.

        Args:
            allow_private: connect to private addresses as well.
            seconds: how long one fetch may take.
            resolver: looks names up; None: the system does, in threads of our own.
            user_agent: who we say that we are.
            connections: at a time; a fetch waits for one, within its time.
            connections_to_host: of those.
        """
        self._allow_private = allow_private
        self._seconds = seconds
        self._resolver = resolver
        self._names: NameThreads | None = None
        self._connections = connections
        self._connections_to_host = connections_to_host
        self._headers = {"User-Agent": user_agent} | _HEADERS
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Make ready."""
        self._names = NameThreads() if self._resolver is None else None
        connector = aiohttp.TCPConnector(
            limit=self._connections,
            limit_per_host=self._connections_to_host,
            resolver=self._resolver or self._names,
            use_dns_cache=False,
            force_close=True,
            socket_factory=self._socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )

    async def stop(self) -> None:
        """Give connections up."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._names is not None:
            self._names.stop()
            self._names = None

    async def get(
        self,
        url: str,
        *,
        max_bytes: int,
        may_follow: MayFollow,
        cut: bool = False,
        headers: Mapping[str, str] | None = None,
        take: Take | None = None,
    ) -> Fetched:
        """Fetch a URL.

        Args:
            url: http or https.
            max_bytes: a longer answer is given up, as it comes or unpacked.
            may_follow: which redirects are followed, five at most.
            cut: take the beginning of a longer answer.
            headers: to be sent besides the usual ones.
            take: gets the body of an answer with status 200, which then has none itself; as it
                comes, so what is packed by gzip still is.

        Raises:
            NotFollowed: it leads elsewhere.
            FetchFailed: says why.
        """
        return await self._follow(
            "GET", url, max_bytes, _REDIRECTS, may_follow, cut=cut, take=take, headers=headers
        )

    async def post(
        self, url: str, fields: Mapping[str, str], *, max_bytes: int, may_follow: MayFollow
    ) -> Fetched:
        """Send a form; where its server says that it is to be sent elsewhere (307, 308), there.

        Args:
            url: http or https.
            fields: of the form.
            max_bytes: a longer answer is given up.
            may_follow: which of those redirects are followed, five at most; others are answers.

        Raises:
            NotFollowed: it leads elsewhere.
            FetchFailed: says why.
        """
        return await self._follow(
            "POST", url, max_bytes, _REDIRECTS_OF_FORMS, may_follow, data=dict(fields), cut=False
        )

    async def _follow(
        self,
        method: str,
        url: str,
        max_bytes: int,
        redirects: Container[int],
        may_follow: MayFollow,
        **options: Any,
    ) -> Fetched:
        moved_to, is_for_good = None, True
        try:
            async with asyncio.timeout(self._seconds):
                for _ in range(MOST_REDIRECTS + 1):
                    answer = await self._ask(method, url, max_bytes, **options)
                    target = answer.headers.get("Location")
                    if answer.status not in redirects or target is None:
                        return replace(answer, moved_to=moved_to)
                    url = self._followed(url, target, may_follow)
                    is_for_good = is_for_good and answer.status in _FOR_GOOD
                    moved_to = url if is_for_good else moved_to
        except TimeoutError as error:
            raise Unreached(f"it takes longer than {self._seconds:g} s") from error
        raise NotFollowed(f"more than {MOST_REDIRECTS} redirects")

    async def _ask(
        self,
        method: str,
        url: str,
        max_bytes: int,
        *,
        cut: bool,
        take: Take | None = None,
        **options: Any,
    ) -> Fetched:
        if self._session is None:
            raise RuntimeError("the fetcher is not started")
        try:
            target = URL(identify(url).url, encoded=True)
            async with self._session.request(
                method, target, allow_redirects=False, **options
            ) as answer:
                if take is not None and answer.status == 200:
                    await _hand_on(answer, max_bytes, take)
                    body = b""
                else:
                    # Of a form's answer, as of an error, only the status is acted on.
                    is_needed = method == "GET" and 200 <= answer.status < 300
                    body = await _body_of(answer, max_bytes, cut=cut, is_needed=is_needed)
                return Fetched(url, answer.status, answer.headers, body)
        except BadUrl as error:
            raise FetchFailed(str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreached(f"it cannot be reached: {error}") from error

    def _followed(self, url: str, target: str, may_follow: MayFollow) -> str:
        """Where a redirect leads."""
        try:
            # yarl would write it in another way, and where it is signed that is another place.
            following: str = ada_url.join_url(url, target)
            follows = may_follow(url, following)
        except ValueError as error:
            # Some of a URL is only looked at when it is asked for, as the name of its host.
            raise NotFollowed("it redirects to what is no URL") from error
        if not follows:
            raise NotFollowed(f"it redirects to {following}, which is not followed")
        return following

    def _socket(self, address_info: Any) -> socket.socket:
        """A socket for one address that is about to be connected to.

        Raises:
            PrivateAddress: it must not be.
        """
        family, kind, protocol, _, address = address_info
        if not self._allow_private and is_inside(address_info):
            raise PrivateAddress(errno.EACCES, f"{address[0]} is not on the public internet")
        return socket.socket(family, kind, protocol)


async def _hand_on(answer: aiohttp.ClientResponse, max_bytes: int, take: Take) -> None:
    """Give a body on as it comes."""
    encoding = _encoding_of(answer)
    if encoding.strip().lower() not in _TAKEN:
        raise FetchFailed(f"it is packed as {encoding[:40]!r}, and only gzip was asked for")
    size = 0
    async for part in answer.content.iter_chunked(_CHUNK_BYTES):
        size += len(part)
        if size > max_bytes:
            raise FetchFailed(f"it has more than {max_bytes} bytes")
        await take(part)


async def _body_of(
    answer: aiohttp.ClientResponse, max_bytes: int, *, cut: bool, is_needed: bool
) -> bytes:
    """A body, or its beginning, unpacked; empty where it cannot be, and is not needed."""
    body = bytearray()
    size = 0
    try:
        unpacking = unpacking_of(_encoding_of(answer))
        async for part in answer.content.iter_chunked(_CHUNK_BYTES):
            size += len(part)
            for piece in (part,) if unpacking is None else unpacking.feed(part):
                body += piece
                if len(body) > max_bytes:
                    break
            if max(size, len(body)) > max_bytes:
                if cut:
                    return bytes(body[:max_bytes])
                raise FetchFailed(f"it has more than {max_bytes} bytes")
        if unpacking is not None:
            unpacking.close()
    except (UnknownPacking, Damaged) as fault:
        if is_needed:
            raise FetchFailed(f"it cannot be unpacked: {fault}") from fault
        return b""
    return bytes(body)


def _encoding_of(answer: aiohttp.ClientResponse) -> str:
    return ", ".join(answer.headers.getall("Content-Encoding", []))
