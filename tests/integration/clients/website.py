"""A small web on loopback: pages that change on a plan, and everything else that webs have."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

GONE_EVERY, MOVED_EVERY, SLOW_EVERY = 50, 40, 30
"""Each so many-th page is not there, leads to another, or takes its time."""


class Website:
    """Hosts of loopback, each a port of its own, with numbered pages."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.versions = [0] * pages
        self.hosts: list[str] = []
        self.seen: Counter[str] = Counter()
        """Requests by path."""
        self.agents: set[str] = set()
        self.robots = "User-agent: *\nDisallow: /private/\nCrawl-delay: 4\n"
        self.odd: dict[str, tuple[int, dict[str, str]]] = {}
        """Path → status and headers of an answer that no browser would need."""
        self.busy = False
        """All pages answer 429."""
        self.answering = asyncio.Event()
        """Pages are answered while it is set."""
        self.answering.set()

    def url(self, number: int) -> str:
        """Of a page."""
        return f"http://{self.hosts[number % len(self.hosts)]}/page/{number}"

    def body(self, number: int) -> bytes:
        """What a page shows now."""
        words = hashlib.sha256(f"{number} {self.versions[number]}".encode()).hexdigest()
        text = f"<html><body><nav>menu</nav><main>{words}</main></body></html>"
        return text.encode()

    @property
    def readable(self) -> list[int]:
        """Pages that can be had."""
        return [number for number in range(self.pages) if not self.is_gone(number)]

    def is_gone(self, number: int) -> bool:
        """Whether a page is not there, nor what it leads to."""
        target = self.target(number)
        return target % GONE_EVERY == GONE_EVERY - 1

    def target(self, number: int) -> int:
        """The page whose content is shown for a page: another one, where it has moved."""
        return number - 1 if number % MOVED_EVERY == MOVED_EVERY - 2 else number

    async def asked(self, path: str) -> None:
        """Wait until a page is asked for."""
        async with asyncio.timeout(60):
            while not self.seen[path]:
                await asyncio.sleep(0.02)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Anything that is asked for."""
        self.seen[request.path] += 1
        self.agents.add(request.headers.get("User-Agent", ""))
        if request.path == "/robots.txt":
            return web.Response(text=self.robots)
        if self.busy:
            return web.Response(status=429, headers={"Retry-After": "7"})
        if request.path in self.odd:
            status, headers = self.odd[request.path]
            return web.Response(status=status, headers=headers)
        await self.answering.wait()
        number = int(request.path.rpartition("/")[2])
        if request.path.startswith("/old/"):
            raise web.HTTPMovedPermanently(f"/page/{number}")
        if self.target(number) != number:
            raise web.HTTPFound(f"/page/{self.target(number)}")
        if self.is_gone(number):
            raise web.HTTPNotFound
        if number % SLOW_EVERY == SLOW_EVERY - 1:
            await asyncio.sleep(0.2)
        return web.Response(body=self.body(number), content_type="text/html")


@asynccontextmanager
async def website(pages: int, hosts: int = 1) -> AsyncIterator[Website]:
    """A web that is up in the block."""
    site = Website(pages)
    app = web.Application()
    app.router.add_get("/{tail:.*}", site.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        for _ in range(hosts):
            server = web.TCPSite(runner, "127.0.0.1", 0)
            await server.start()
        site.hosts = [f"127.0.0.1:{port}" for _, port in runner.addresses]
        yield site
    finally:
        await runner.cleanup()
