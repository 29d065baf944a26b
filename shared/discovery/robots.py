"""robots.txt, RFC 9309: what may be fetched, how often, and where sitemaps are."""

import asyncio
import re
from dataclasses import dataclass
from typing import Final, Protocol

from protego import Protego
from yarl import URL

from shared.discovery.busy import require_not_busy
from shared.discovery.robots_groups import own_group
from shared.runtime.fetching import Fetcher, FetchFailed
from shared.runtime.wall_time import WALL

ROBOTS_BYTES: Final = 500 * 1024
"""What comes later does not count, as the RFC has it."""

MOST_SITEMAPS: Final = 100
LONGEST_DELAY_SECONDS: Final = 60.0
"""A longer crawl delay counts as this one: it is meant for whole sites, not for a file a day."""

_PRODUCT: Final = re.compile(r"(?:Mozilla/.*?\(compatible;\s*)?([A-Za-z_-]+(?:/[^\s();,]+)?)")
"""At the beginning of who we say that we are, or where crawlers have it that call themselves
Mozilla as all browsers do."""


class _Rules(Protocol):
    def can_fetch(self, url: str, user_agent: str) -> bool: ...


class _Nothing:
    """Rules that let nothing be fetched."""

    def can_fetch(self, _url: str, _agent: str) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Robots:
    """What a host's robots.txt says to us."""

    agent: str
    rules: _Rules | None = None
    """None: everything is allowed."""
    crawl_delay: float = 0.0
    """Seconds between two requests."""
    sitemaps: tuple[str, ...] = ()
    """URLs, as written."""

    def allows(self, url: str) -> bool:
        """Whether a URL of the host may be fetched."""
        return self.rules is None or self.rules.can_fetch(url, self.agent)


def unknown_robots(agent: str) -> Robots:
    """What holds where a host's robots.txt cannot be had: nothing is allowed."""
    return Robots(agent, _Nothing())


def robots_url(url: str) -> str:
    """Where the robots.txt is that holds for a URL."""
    return str(URL(url, encoded=True).origin().with_path("/robots.txt"))


def product_of(agent: str) -> str:
    """The name by which robots.txt speaks of an agent (RFC 9309, 2.2.1), with its version: what
    follows, as an address to write to, may have the names of others in it.

    Args:
        agent: who we say that we are.
    """
    found = _PRODUCT.match(agent)
    return agent if found is None else found[1]


def read_robots(text: bytes, agent: str) -> Robots:
    """What a robots.txt says.

    Args:
        text: the file, or its beginning.
        agent: who we say that we are.
    """
    rules = Protego.parse(own_group(text.decode("utf-8-sig", "replace"), product_of(agent)))
    delay = rules.crawl_delay(agent) or 0.0
    named = dict.fromkeys(rules.sitemaps)
    return Robots(
        agent, rules, min(float(delay), LONGEST_DELAY_SECONDS), tuple(named)[:MOST_SITEMAPS]
    )


async def fetch_robots(fetcher: Fetcher, url: str, agent: str) -> Robots:
    """The rules that hold for a URL. A host without the file (4xx) allows everything.

    Raises:
        Busy: its host asks for a pause.
        FetchFailed: it cannot be had, so nothing is allowed now.
    """
    answer = await fetcher.get(
        robots_url(url), max_bytes=ROBOTS_BYTES, may_follow=to_the_web, cut=True
    )
    require_not_busy(answer, WALL.now(), "its robots.txt")
    if answer.says_nothing:
        raise FetchFailed(f"its robots.txt answers {answer.status}")
    if answer.status >= 300:
        return Robots(agent)
    # A file with tens of thousands of rules takes a second of a processor.
    return await asyncio.to_thread(read_robots, answer.body, agent)


def to_the_web(_: str, target: str) -> bool:
    """Whether a redirect leads to http or https; its address is looked at when it is connected."""
    return target.startswith(("http://", "https://"))
