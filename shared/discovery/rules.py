"""Which of the URLs that crawls come upon may become pages, as far as the URLs themselves say."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeVar

from shared.contracts.identity import PageIdentity, is_private_host
from shared.discovery.patterns import Patterns
from shared.discovery.updates import Said
from shared.runtime.host_patterns import HostPatterns
from shared.runtime.settings import Settings

Refusal = Literal["no-url", "private", "host", "pattern", "trap", "depth", "quota"]
"""Why a URL does not become a page. `host`: it is none of those that are wanted; `trap`: its path
or query looks like one that a site makes without end; `quota`: its host has pages enough."""

MOST_REPEATED: Final = 3
"""Links that lead on and on below each other repeat their parts: /a/b/a/b/a/b/…"""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DiscoveryRules:
    """Of all links; what is looked up, known hosts and quotas, is `Admission`'s to say."""

    hosts: HostPatterns
    patterns: Patterns
    most_depth: int | None
    """Links away from where the crawl began; None: any."""
    most_pages_of_host: int
    most_segments: int
    """Parts of the path."""
    most_query_characters: int
    allow_private: bool
    importance: tuple[tuple[Patterns, float], ...] = ()
    """Of pages that are let in: that of the first patterns that fit."""
    classes: tuple[tuple[Patterns, str], ...] = ()
    """The same of their classes."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As configured."""
        return cls(
            HostPatterns(settings.discovery_hosts),
            Patterns(settings.discovery_include, settings.discovery_exclude),
            settings.discovery_most_depth,
            settings.discovery_most_pages_of_host,
            settings.discovery_most_segments,
            settings.discovery_most_query_characters,
            settings.allow_private_hosts,
            tuple(
                (Patterns([pattern], []), importance)
                for pattern, importance in settings.discovery_importance.items()
            ),
            tuple(
                (Patterns([pattern], []), name)
                for pattern, name in settings.discovery_classes.items()
            ),
        )

    def said_of(self, page: PageIdentity) -> Said:
        """What is said of a page that is let in."""
        return Said(_first(self.importance, page.url), _first(self.classes, page.url))

    def refusal(self, page: PageIdentity, depth: int | None) -> Refusal | None:
        """Why a page is not wanted, whatever is known of it and its host; None: it may be.

        Args:
            page: that was found.
            depth: of it; None: not known, so it may be any.
        """
        if not self.allow_private and is_private_host(page.host):
            return "private"
        if self.most_depth is not None and (depth is None or depth > self.most_depth):
            return "depth"
        if not self.hosts.known and not self.hosts.name(page.host):
            return "host"
        if self._is_trap(page.url):
            return "trap"
        return None if self.patterns.let_pass(page.url) else "pattern"

    def _is_trap(self, url: str) -> bool:
        path, _, query = url.partition("?")
        if len(query) > self.most_query_characters:
            return True
        segments = [segment for segment in path.split("/")[3:] if segment]
        if len(segments) > self.most_segments:
            return True
        if len(segments) <= MOST_REPEATED:
            return False
        return max(Counter(segments).values()) > MOST_REPEATED


def _first(said: Iterable[tuple[Patterns, T]], url: str) -> T | None:
    """What is said of a URL by the first patterns that fit; None: nothing is."""
    return next((what for patterns, what in said if patterns.let_pass(url)), None)
