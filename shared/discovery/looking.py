"""Looking at a site: its robots.txt, sitemaps, feeds and hubs."""

import asyncio
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urljoin

import xxhash
from yarl import URL

from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.discovery.links import HEAD_BYTES, Links
from shared.discovery.robots import Robots, fetch_robots, to_the_web, unknown_robots
from shared.runtime.fetching import Fetched, Fetcher, FetchFailed

GUESSES: Final = ("/sitemap.xml", "/sitemap_index.xml")
"""Where sitemaps stand that no robots.txt names."""

_LONGEST_SOURCE: Final = 120
_SITE: Final = "site:"


@dataclass(slots=True)
class Found:
    """What a site has."""

    hosts: list[str] = field(default_factory=list)
    """Its own, and the one that it leads to."""
    sources: dict[str, str] = field(default_factory=dict)
    """URL of a sitemap or a feed → how it was found: `robots`, `guess` or `link`."""
    hubs: dict[str, str] = field(default_factory=dict)
    """A feed or page, by the name that its hub knows → the hub."""
    notes: list[str] = field(default_factory=list)
    """What could not be looked at, and why."""


def source_of(url: str) -> str:
    """The source of a sitemap's or a feed's signals: where it stands, without a query, which may be
    a secret."""
    place = URL(url, encoded=True)
    name = f"{_SITE}{place.raw_authority}{place.raw_path}"
    if not place.raw_query_string and len(name) <= _LONGEST_SOURCE:
        return name
    return f"{name[: _LONGEST_SOURCE - 17]}#{xxhash.xxh3_64_hexdigest(url.encode())}"


async def look_at(fetcher: Fetcher, page: PageIdentity, agent: str) -> Found:
    """Look at a site.

    Args:
        fetcher: started.
        page: where the site begins.
        agent: who we say that we are.
    """
    found = Found([page.host])
    home = await _fetched(fetcher, page.url, found)
    begins = page
    if home is not None:
        begins = identify(home.url)
        found.hosts += [begins.host] if begins.host != page.host else []
    robots = await _robots_of(fetcher, begins, agent, found)
    for url in robots.sitemaps:
        _add(found, begins.url, url, "robots")
    if not found.sources:
        await _guess(fetcher, begins, robots, found)
    if home is not None:
        links = await _links_of(home)
        _note_hub(found, begins.url, links)
        for url in links.feeds:
            _add(found, begins.url, url, "link")
    for url, how in list(found.sources.items()):
        feed = await _fetched(fetcher, url, found) if how == "link" and robots.allows(url) else None
        if feed is not None:
            _note_hub(found, url, await _links_of(feed))
    return found


async def _fetched(fetcher: Fetcher, url: str, found: Found) -> Fetched | None:
    try:
        answer = await fetcher.get(url, max_bytes=HEAD_BYTES, may_follow=to_the_web, cut=True)
    except FetchFailed as failure:
        found.notes.append(f"{url}: {failure}")
        return None
    if answer.status == 200:
        return answer
    found.notes.append(f"{url}: it answers {answer.status}")
    return None


async def _robots_of(fetcher: Fetcher, page: PageIdentity, agent: str, found: Found) -> Robots:
    try:
        return await fetch_robots(fetcher, page.url, agent)
    except FetchFailed as failure:
        found.notes.append(f"robots.txt: {failure}")
        return unknown_robots(agent)


async def _guess(fetcher: Fetcher, page: PageIdentity, robots: Robots, found: Found) -> None:
    for path in GUESSES:
        url = urljoin(page.url, path)
        answer = await _fetched(fetcher, url, Found()) if robots.allows(url) else None
        if answer is not None and b"<html" not in answer.body[:1024].lower():
            _add(found, page.url, url, "guess")
            return


async def _links_of(answer: Fetched) -> Links:
    links = Links()
    links.note_headers(answer.headers.getall("Link", []))
    await asyncio.to_thread(links.feed, answer.body.decode("utf-8", "replace"))
    return links


def _note_hub(found: Found, url: str, links: Links) -> None:
    if links.hub is not None:
        try:
            own, hub = (identify(urljoin(url, link)).url for link in (links.own or url, links.hub))
            found.hubs[own] = hub
        except (BadUrl, ValueError) as error:
            found.notes.append(f"its hub: {error}")


def _add(found: Found, base: str, url: str, how: str) -> None:
    try:
        found.sources.setdefault(identify(urljoin(base, url.strip())).url, how)
    except (BadUrl, ValueError) as error:
        found.notes.append(f"{url[:200]}: {error}")
