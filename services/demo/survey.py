"""How fresh the copies on disk are, measured from outside: bytes on disk beside what sites serve.

Every second some pages are drawn, of all that can be had. Each is fetched from its site as a
visitor would get it, and compared with the file that the crawlers keep of it. Of each look it is
noted, too, when the page was last another one, by the plan: `chance` makes of that what the same
number of requests would have given.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp

from services.demo import chance, documents
from services.demo.website import SURVEY, Site, Website

TURN_SECONDS: Final = 1.0
PAGES_AT_ONCE: Final = 40
_SEED: Final = 20


class Look(NamedTuple):
    """A page that was looked at."""

    at: float
    """Seconds from the beginning."""
    kind: str
    """Of its site."""
    since: float
    """Seconds since it was last another one, or the beginning."""
    fresh: bool
    """The copy is what the site serves, byte by byte."""


class Means(NamedTuple):
    """Of some looks: the share that was fresh, and would have been by other means."""

    fresh: float
    in_turn: float
    at_random: float
    once: float


class Copies(NamedTuple):
    """What the folder holds at the end."""

    pages: int
    """That can be had."""
    missing: int
    current: int
    """Are what the site shows now."""
    unknown: int
    """Are what the site never showed."""


class Survey:
    """Looks for as long as it is let."""

    def __init__(self, website: Website, folder: Path) -> None:
        """Make it.

        Args:
            website: whose pages are looked at.
            folder: of the copies, as `scrapy-freshet crawl --files` keeps them.
        """
        self.looks: list[Look] = []
        self._website = website
        self._folder = folder
        self._random = random.Random(_SEED)  # noqa: S311 - a sample, not a secret

    async def run(self) -> None:
        """Look every second."""
        headers = {"User-Agent": SURVEY}
        async with aiohttp.ClientSession(headers=headers) as client:
            while True:
                for site, path in self._drawn():
                    await self._look(client, site, path)
                await asyncio.sleep(TURN_SECONDS)

    def copies(self) -> Copies:
        """Look at all copies, beside the plan."""
        now = self._website.now()
        held = [
            (self._copy(site, path), _versions(site, path, now))
            for site, path in _there(self._website, now)
        ]
        return Copies(
            len(held),
            sum(copy is None for copy, _ in held),
            sum(copy == versions[-1] for copy, versions in held),
            sum(copy is not None and copy not in versions for copy, versions in held),
        )

    def _drawn(self) -> list[tuple[Site, str]]:
        there = _there(self._website, self._website.now())
        return self._random.sample(there, min(PAGES_AT_ONCE, len(there)))

    async def _look(self, client: aiohttp.ClientSession, site: Site, path: str) -> None:
        now = self._website.now()
        copy = self._copy(site, path)
        try:
            async with client.get(site.url(path)) as answer:
                fresh = answer.status == 200 and await answer.read() == copy
        except aiohttp.ClientError:
            return
        since = now - site.plan.pages[path].changed_at(now)
        self.looks.append(Look(now, site.plan.kind.name, since, fresh))

    def _copy(self, site: Site, path: str) -> bytes | None:
        name = hashlib.sha256(site.url(path).encode()).hexdigest()
        try:
            return (self._folder / name[:2] / name).read_bytes()
        except FileNotFoundError:
            return None


def means(looks: Sequence[Look], interval: float, wanted: Callable[[Look], bool]) -> Means | None:
    """What was seen, beside what the same number of requests would have given; None: nothing was.

    Args:
        looks: of pages.
        interval: T of `chance`, seconds.
        wanted: which of them count.
    """
    some = [look for look in looks if wanted(look)]
    if not some:
        return None
    return Means(
        sum(look.fresh for look in some) / len(some),
        sum(chance.in_turn(look.since, interval) for look in some) / len(some),
        sum(chance.at_random(look.since, interval) for look in some) / len(some),
        sum(chance.once(look.since, look.at, interval) for look in some) / len(some),
    )


def _there(website: Website, now: float) -> list[tuple[Site, str]]:
    """Pages that can be had, at addresses of their own: old ones only lead there."""
    return [
        (site, page.path)
        for site in website.sites
        for page in site.plan.pages.values()
        if page.appears_at <= now and page.leads_to is None
    ]


def _versions(site: Site, path: str, now: float) -> list[bytes]:
    """What a site has shown there, oldest first."""
    versions = site.plan.pages[path].version(now) + 1
    return [documents.page(site.plan, path, n) for n in range(versions)]
