"""What sites of the demonstration's web say: pages, robots.txt, sitemaps and feeds. Pure."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import NamedTuple
from xml.sax.saxutils import escape

from services.demo.plan import SitePlan

KEY = "f7e3d1c5b9a84026"
"""IndexNow's key of all sites; each shows it in a file of this name."""

INDEX = "/sitemap-index.xml"
SITEMAP = "/pages.xml"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SITEMAPS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_WORDS = 120
_FEED_TYPES = {
    "atom": "application/atom+xml",
    "rss": "application/rss+xml",
    "json": "application/feed+json",
}


class Entry(NamedTuple):
    """A page, as sitemaps and feeds name it."""

    url: str
    changed_at: float | None
    """Unix seconds; None: nothing is said."""


class Document(NamedTuple):
    """An answer's body."""

    content_type: str
    body: bytes


def page(site: SitePlan, path: str, version: int) -> bytes:
    """A page as it is after so many changes: other words each time."""
    words: list[str] = []
    while len(words) < _WORDS:
        seed = f"{site.name} {path} {version} {len(words)}".encode()
        digest = hashlib.blake2b(seed).hexdigest()
        words += [digest[at : at + 8] for at in range(0, len(digest), 8)]
    return (
        f"<!doctype html><html><head><title>{site.name}{path}</title></head><body>"
        f'<nav><a href="/">{site.name}</a></nav><main><h1>{path}, version {version}</h1>'
        f"<p>{' '.join(words)}</p></main></body></html>\n"
    ).encode()


def home(site: SitePlan) -> bytes:
    """The first page, which names the feed."""
    link = ""
    if site.kind.feed:
        kind = _FEED_TYPES[site.kind.feed]
        link = f'<link rel="alternate" type="{kind}" title="News" href="/feed">'
    return f"<!doctype html><html><head>{link}</head><body>{site.name}</body></html>\n".encode()


def robots(site: SitePlan, origin: str) -> bytes:
    """robots.txt."""
    delay = "Crawl-delay: 2\n" if site.kind.slow else ""
    return (
        f"User-agent: *\nDisallow: /private/\n{delay}\nSitemap: {origin}{sitemap_path(site)}\n"
    ).encode()


def sitemap_path(site: SitePlan) -> str:
    """Where robots.txt says that the sitemap is."""
    if site.kind.indexed:
        return INDEX
    return "/pages.txt" if site.kind.sitemap == "text" else SITEMAP


def sitemap(site: SitePlan, entries: Sequence[Entry]) -> Document:
    """The site's sitemap."""
    if site.kind.sitemap == "text":
        return Document("text/plain", "".join(f"{entry.url}\n" for entry in entries).encode())
    urls = "".join(f"<url><loc>{escape(e.url)}</loc>{_lastmod(e)}</url>\n" for e in entries)
    body = f"{_XML}<urlset {_SITEMAPS}>\n{urls}</urlset>\n".encode()
    if site.kind.packed:
        return Document("application/gzip", gzip.compress(body, mtime=0))
    return Document("application/xml", body)


def sitemap_index(part: Entry) -> Document:
    """An index of one sitemap."""
    named = f"<sitemap><loc>{escape(part.url)}</loc>{_lastmod(part)}</sitemap>"
    body = f"{_XML}<sitemapindex {_SITEMAPS}>{named}</sitemapindex>\n"
    return Document("application/xml", body.encode())


def feed(site: SitePlan, origin: str, entries: Sequence[Entry]) -> Document:
    """The site's feed; all entries have dates."""
    make = {"atom": _atom, "rss": _rss, "json": _json_feed}[site.kind.feed]
    return Document(_FEED_TYPES[site.kind.feed], make(site, origin, entries).encode())


def _atom(site: SitePlan, origin: str, entries: Sequence[Entry]) -> str:
    items = "".join(
        f"<entry><id>{escape(e.url)}</id><title>{site.name}</title>"
        f'<link href="{escape(e.url)}"/><updated>{_written(e.changed_at)}</updated></entry>\n'
        for e in entries
    )
    newest = _written(max((e.changed_at or 0.0 for e in entries), default=0.0))
    return (
        f'{_XML}<feed xmlns="http://www.w3.org/2005/Atom"><id>{origin}/feed</id>'
        f"<title>{site.name}</title><updated>{newest}</updated>\n{items}</feed>\n"
    )


def _rss(site: SitePlan, origin: str, entries: Sequence[Entry]) -> str:
    items = "".join(
        f"<item><title>{site.name}</title><link>{escape(e.url)}</link>"
        f"<pubDate>{format_datetime(_moment(e.changed_at))}</pubDate></item>\n"
        for e in entries
    )
    return (
        f'{_XML}<rss version="2.0"><channel><title>{site.name}</title><link>{origin}/</link>'
        f"<description>{site.name}</description>\n{items}</channel></rss>\n"
    )


def _json_feed(site: SitePlan, _: str, entries: Sequence[Entry]) -> str:
    items = [
        {"id": e.url, "url": e.url, "content_text": "", "date_modified": _written(e.changed_at)}
        for e in entries
    ]
    feed = {"version": "https://jsonfeed.org/version/1.1", "title": site.name, "items": items}
    return json.dumps(feed)


def _lastmod(entry: Entry) -> str:
    return "" if entry.changed_at is None else f"<lastmod>{_written(entry.changed_at)}</lastmod>"


def _written(at: float | None) -> str:
    """To the millisecond: in this web, a second is long."""
    return _moment(at).isoformat(timespec="milliseconds")


def _moment(at: float | None) -> datetime:
    return datetime.fromtimestamp(at or 0.0, UTC)
