"""What the demonstration's web does: its sites, their pages, and when each changes. Pure, seeded.

Times are seconds from the moment at which the web begins to move.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Final, Literal

import numpy as np

PACES: Final = ((math.inf, 0.6), (180.0, 0.2), (45.0, 0.12), (10.0, 0.08))
"""Seconds between two changes on average, and the share of pages of which that holds."""

LATE_SHARE: Final = 0.25
"""Of the pages of a site that grows, so many come while one watches."""

LATEST: Final = 0.4
"""The part of the time in which they come."""

FALSE_PINGS: Final = 0.5
"""A careless site announces so many changes that never were for each that was."""

BUSY: Final = (0.4, 0.6)
"""The part of the time in which a busy site turns everybody away."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a site is like."""

    name: str
    sitemap: Literal["dated", "undated", "lying", "text"]
    packed: bool = False
    """Its sitemap comes as gzip."""
    indexed: bool = False
    """Its sitemap is named by an index."""
    feed: Literal["", "atom", "rss", "json"] = ""
    pings: bool = False
    """It sends IndexNow for each change."""
    careless: bool = False
    """It sends it of pages that have not changed, too."""
    grows: bool = False
    busy: bool = False
    slow: bool = False
    """Its robots.txt has a crawl delay."""
    pace: float = 1.0
    """Its pages change by so much more rarely."""


KINDS: Final = (
    Kind("docs", "dated"),
    Kind("shop", "undated", pings=True),
    Kind("busy", "dated", busy=True),
    Kind("blog", "text", feed="atom", grows=True),
    Kind("liar", "lying"),
    Kind("wiki", "undated", pings=True, careless=True),
    Kind("silent", "undated", packed=True),
    Kind("news", "dated", indexed=True, feed="rss", grows=True, pace=0.5),
    Kind("forum", "undated", feed="json"),
    Kind("archive", "dated", packed=True, slow=True, pace=4.0),
)
"""In the order in which sites of them are set up, again and again."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that can be had."""

    path: str
    changes: tuple[float, ...]
    """When it changes, rising."""
    appears_at: float = 0.0
    leads_to: str | None = None
    """The page that it redirects to, whose content is shown."""

    def version(self, at: float) -> int:
        """How often it has changed by then."""
        return bisect_right(self.changes, at)

    def changed_at(self, at: float) -> float:
        """When it was last another one before; its appearance counts."""
        version = self.version(at)
        return self.changes[version - 1] if version else self.appears_at


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A site."""

    name: str
    kind: Kind
    pages: dict[str, Page] = field(default_factory=dict)
    """By path."""
    private: tuple[str, ...] = ("/private/1", "/private/2")
    """Paths that the sitemap names and robots.txt forbids."""
    gone: tuple[str, ...] = ("/gone/1",)
    """Paths that the sitemap names and that are not there."""
    pings: tuple[tuple[float, str], ...] = ()
    """When the site announces which path."""
    busy: tuple[float, float] = (math.inf, math.inf)
    """From when to when everybody is turned away."""

    def busy_for(self, at: float) -> float:
        """Seconds for which it wants to be left alone; 0: it does not."""
        begin, end = self.busy
        return end - at if begin <= at < end else 0.0


def make_plan(sites: int, pages: int, seconds: float, seed: int) -> list[SitePlan]:
    """The web.

    Args:
        sites: how many.
        pages: of each, beside an old address of one of them.
        seconds: for which it moves.
        seed: of all that is drawn.
    """
    rng = np.random.default_rng(seed)
    return [
        _site(f"{kind.name}-{number}", kind, pages, seconds, rng)
        for number, kind in enumerate(islice(cycle(KINDS), sites))
    ]


def _site(name: str, kind: Kind, count: int, seconds: float, rng: np.random.Generator) -> SitePlan:
    pages = {}
    for number in range(count):
        late = kind.grows and number >= count * (1 - LATE_SHARE)
        appears_at = float(rng.uniform(0.0, LATEST * seconds)) if late else 0.0
        path = f"/page/{number}"
        pages[path] = Page(path, _changes(kind.pace, appears_at, seconds, rng), appears_at)
    # An old address that the sitemap still names.
    moved = pages["/page/0"]
    pages["/old/1"] = Page("/old/1", moved.changes, moved.appears_at, moved.path)
    return SitePlan(
        name,
        kind,
        pages,
        pings=_pings(kind, pages, seconds, rng) if kind.pings else (),
        busy=(BUSY[0] * seconds, BUSY[1] * seconds) if kind.busy else (math.inf, math.inf),
    )


def _changes(
    pace: float, begin: float, seconds: float, rng: np.random.Generator
) -> tuple[float, ...]:
    between = rng.choice([each for each, _ in PACES], p=[share for _, share in PACES]) * pace
    changes = []
    at = begin + (rng.exponential(between) if math.isfinite(between) else math.inf)
    while at < seconds:
        changes.append(float(at))
        at += rng.exponential(between)
    return tuple(changes)


def _pings(
    kind: Kind, pages: dict[str, Page], seconds: float, rng: np.random.Generator
) -> tuple[tuple[float, str], ...]:
    pings = [(at, page.path) for page in pages.values() for at in page.changes]
    if kind.careless:
        paths = list(pages)
        false = int(len(pings) * FALSE_PINGS)
        times, which = rng.uniform(0.0, seconds, false), rng.integers(len(paths), size=false)
        pings += [(float(at), paths[page]) for at, page in zip(times, which, strict=True)]
    return tuple(sorted(pings))
