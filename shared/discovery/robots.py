"""robots.txt, RFC 9309: what may be fetched, how often, and where sitemaps are."""

import re
from dataclasses import dataclass
from typing import Final, Protocol

from protego import Protego
from yarl import URL

from shared.runtime.fetching import Fetcher, FetchFailed

ROBOTS_BYTES: Final = 500 * 1024
"""What comes later does not count, as the RFC has it."""

MOST_SITEMAPS: Final = 100
LONGEST_DELAY_SECONDS: Final = 60.0
"""A longer crawl delay counts as this one: it is meant for whole sites, not for a file a day."""

MOST_AGENTS: Final = 10
"""Names by which a file may call us; the longest ones count."""

_AGENT: Final = re.compile(r"\s*user[ -]?agent(?:\s*:|\s)\s*([^#]*)", re.IGNORECASE)
_NOBODY: Final = "User-agent: \0"
"""No agent has this name."""


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


def read_robots(text: bytes, agent: str) -> Robots:
    """What a robots.txt says.

    Args:
        text: the file, or its beginning.
        agent: who we say that we are.
    """
    rules = Protego.parse(_about(agent, text.decode("utf-8-sig", "replace")))
    delay = rules.crawl_delay(agent) or 0.0
    named = dict.fromkeys(rules.sitemaps)
    return Robots(
        agent, rules, min(float(delay), LONGEST_DELAY_SECONDS), tuple(named)[:MOST_SITEMAPS]
    )


def _about(agent: str, text: str) -> str:
    """A file in which all agents that are not this one have one name: the rules of a group are kept
    for each name that it has, thousands of both where somebody wants to fill our memory."""
    lines = text.splitlines()
    named = {place: found[1] for place, line in enumerate(lines) if (found := _AGENT.match(line))}
    us = agent.lower()
    names = {name: name.strip().lower().replace("*", "") for name in named.values()}
    ours = {name for name, plain in names.items() if plain in us}
    kept = set(sorted(ours, key=lambda name: len(names[name]), reverse=True)[:MOST_AGENTS])
    for place, name in named.items():
        if name.strip() != "*" and name not in kept:
            lines[place] = _NOBODY
    return "\n".join(lines)


async def fetch_robots(fetcher: Fetcher, url: str, agent: str) -> Robots:
    """The rules that hold for a URL. A host without the file (4xx) allows everything.

    Raises:
        FetchFailed: it cannot be had, so nothing is allowed now.
    """
    answer = await fetcher.get(
        robots_url(url), max_bytes=ROBOTS_BYTES, may_follow=to_the_web, cut=True
    )
    if answer.says_nothing:
        raise FetchFailed(f"its robots.txt answers {answer.status}")
    return read_robots(answer.body, agent) if answer.status < 300 else Robots(agent)


def to_the_web(_: str, target: str) -> bool:
    """Whether a redirect leads to http or https; its address is looked at when it is connected."""
    return target.startswith(("http://", "https://"))
