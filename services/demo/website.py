"""The demonstration's web: real HTTP sites on loopback, each a port and so a host of its own."""

import hashlib
import math
import time
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiohttp import web

from services.demo import documents
from services.demo.documents import Document, Entry
from services.demo.plan import Page, SitePlan
from shared.units import SECONDS_PER_DAY

LOOPBACK: Final = "127.0.0.1"
FLEET: Final = "freshet-demo-fleet"
POLLER: Final = "freshet-demo-poller"
SURVEY: Final = "freshet-demo-survey"
"""User agents: the crawlers', the poller's, and that of whoever measures."""

FEED_ENTRIES: Final = 10


class Visit(NamedTuple):
    """A request that a site got, and what it answered."""

    at: float
    """Seconds from the beginning."""
    site: str
    path: str
    agent: str
    status: int
    retry_after: float
    """What the answer asked for, seconds; 0: nothing."""


@dataclass(slots=True)
class Site:
    """A site that is up."""

    plan: SitePlan
    host: str

    @property
    def origin(self) -> str:
        """Its address."""
        return f"http://{self.host}"

    def url(self, path: str) -> str:
        """Of a path."""
        return self.origin + path


class Website:
    """All sites, from one process."""

    def __init__(self, plan: list[SitePlan]) -> None:
        self.sites: list[Site] = []
        self.visits: list[Visit] = []
        """All but those of whoever measures, from the beginning on."""
        self._plan = plan
        self._by_host: dict[str, Site] = {}
        self._made_at = time.time()
        self._began_at = math.inf
        self._ended_at = math.inf
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Be there, and stand still."""
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await self._runner.setup()
        for plan in self._plan:
            await web.TCPSite(self._runner, LOOPBACK, 0).start()
            host = f"{LOOPBACK}:{self._runner.addresses[-1][1]}"
            self.sites.append(Site(plan, host))
        self._by_host = {site.host: site for site in self.sites}

    async def stop(self) -> None:
        """Be gone."""
        if self._runner is not None:
            await self._runner.cleanup()

    def begin(self) -> None:
        """Begin to move."""
        self._began_at = time.time()
        self.visits.clear()

    def end(self) -> None:
        """Stand still again."""
        self._ended_at = time.time()

    def now(self) -> float:
        """Seconds from the beginning; before it 0 or less."""
        if math.isinf(self._began_at):
            return -1.0
        return min(time.time(), self._ended_at) - self._began_at

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        site, now = self._by_host.get(request.host), self.now()
        if site is None:
            return web.Response(status=421)
        agent = request.headers.get("User-Agent", "")
        busy = site.plan.busy_for(now) if agent in (FLEET, POLLER) else 0.0
        if busy and request.path != "/robots.txt":
            wait = math.ceil(busy)
            answer = web.Response(status=429, headers={"Retry-After": str(wait)})
        else:
            wait = 0
            answer = self._found(site, request, now)
        if agent != SURVEY:
            visit = Visit(now, site.plan.name, request.path, agent, answer.status, wait)
            self.visits.append(visit)
        return answer

    def _found(self, site: Site, request: web.BaseRequest, now: float) -> web.Response:
        path = request.path
        page = site.plan.pages.get(path)
        if page is not None and page.appears_at <= max(now, 0.0):
            if page.leads_to is not None:
                return web.Response(status=301, headers={"Location": page.leads_to})
            body = documents.page(site.plan, path, page.version(now))
            return _conditional(request, Document("text/html", body))
        document = self._document(site, path, now)
        return web.Response(status=404) if document is None else _conditional(request, document)

    def _document(self, site: Site, path: str, now: float) -> Document | None:
        plan = site.plan
        found: Document | None = None
        if path == "/":
            found = Document("text/html", documents.home(plan))
        elif path == "/robots.txt":
            found = Document("text/plain", documents.robots(plan, site.origin))
        elif path == f"/{documents.KEY}.txt" and plan.kind.pings:
            found = Document("text/plain", documents.KEY.encode())
        elif path in plan.private:
            found = Document("text/html", b"<html><body>nobody is to see this</body></html>")
        elif path == "/feed" and plan.kind.feed:
            entries = sorted(self._entries(site, now), key=lambda e: -(e.changed_at or 0.0))
            found = documents.feed(plan, site.origin, entries[:FEED_ENTRIES])
        elif path == documents.INDEX and plan.kind.indexed:
            newest = max(entry.changed_at or 0.0 for entry in self._entries(site, now))
            found = documents.sitemap_index(Entry(site.url(documents.SITEMAP), newest))
        elif path in (documents.sitemap_path(plan), documents.SITEMAP):
            found = documents.sitemap(plan, self._named(site, now))
        return found

    def _named(self, site: Site, now: float) -> list[Entry]:
        """What the sitemap names: pages, with dates or without, and what it should not name."""
        plan, entries = site.plan, self._entries(site, now)
        if plan.kind.sitemap == "lying":
            entries = [entry._replace(changed_at=time.time()) for entry in entries]
        elif plan.kind.sitemap != "dated":
            entries = [entry._replace(changed_at=None) for entry in entries]
        return entries + [Entry(site.url(path), None) for path in (*plan.private, *plan.gone)]

    def _entries(self, site: Site, now: float) -> list[Entry]:
        there = [page for page in site.plan.pages.values() if page.appears_at <= max(now, 0.0)]
        return [Entry(site.url(page.path), self._changed_at(page, now)) for page in there]

    def _changed_at(self, page: Page, now: float) -> float:
        at = page.changed_at(now)
        return self._began_at + at if at > 0.0 else self._made_at - SECONDS_PER_DAY


def _conditional(request: web.BaseRequest, document: Document) -> web.Response:
    tag = f'"{hashlib.blake2b(document.body, digest_size=8).hexdigest()}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag})
    return web.Response(
        body=document.body, content_type=document.content_type, headers={"ETag": tag}
    )
