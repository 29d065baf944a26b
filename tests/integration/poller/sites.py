"""A site on loopback whose files a test sets, with validators as servers send them."""

import asyncio
import gzip
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from aiohttp import web

from deploy.local.process import free_port

XML = '<?xml version="1.0" encoding="UTF-8"?>'
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'

Serve = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def date(seconds: float) -> str:
    """As sitemaps have it, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def sitemap(entries: Iterable[tuple[str, str]]) -> bytes:
    """Of (URL, lastmod)."""
    urls = "".join(f"<url><loc>{u}</loc><lastmod>{at}</lastmod></url>" for u, at in entries)
    return f"{XML}<urlset {NAMESPACE}>{urls}</urlset>".encode()


def index(urls: Iterable[str]) -> bytes:
    """Of sitemaps."""
    named = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return f"{XML}<sitemapindex {NAMESPACE}>{named}</sitemapindex>".encode()


def atom(entries: Iterable[tuple[str, str]]) -> bytes:
    """Of (URL, updated)."""
    body = "".join(
        f'<entry><id>{u}</id><link href="{u}"/><updated>{at}</updated></entry>' for u, at in entries
    )
    return f'{XML}<feed xmlns="http://www.w3.org/2005/Atom">{body}</feed>'.encode()


class WatchedSite:
    """Answers with its files; remembers each request and what it answered."""

    def __init__(self) -> None:
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        self.files: dict[str, bytes] = {}
        self.answers: Counter[tuple[str, int]] = Counter()
        """By path and status."""
        self.away = False
        """Everything is answered with 503."""
        self.agents: set[str] = set()
        self.answering: Serve | None = None
        """Answers instead."""

    def page(self, number: int) -> str:
        return f"{self.url}/page/{number}"

    def put(self, path: str, body: bytes, *, packed: bool = False) -> None:
        self.files[path] = gzip.compress(body) if packed else body

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.answering is not None:
            return await self.answering(request)
        self.agents.add(request.headers.get("User-Agent", ""))
        status, body, headers = self._found(request)
        self.answers[request.path, status] += 1
        return web.Response(status=status, body=body, headers=headers)

    def _found(self, request: web.BaseRequest) -> tuple[int, bytes, dict[str, str]]:
        if self.away:
            return 503, b"", {}
        body = self.files.get(request.path)
        if body is None:
            return 404, b"", {}
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if request.headers.get("If-None-Match") == etag:
            return 304, b"", {"ETag": etag}
        return 200, body, {"ETag": etag}

    async def asked(self, path: str, status: int, times: int = 1) -> None:
        """Wait until something was answered so often, from now on."""
        before = self.answers[path, status]
        deadline = time.monotonic() + 60.0
        while self.answers[path, status] < before + times:
            assert time.monotonic() < deadline, self.answers
            await asyncio.sleep(0.02)
