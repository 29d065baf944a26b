"""Where a page or a feed leads: its hub, its own name, its feeds. Pure."""

import contextlib
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Final

HEAD_BYTES: Final = 512 * 1024
"""Links stand at the beginning; what comes later of a longer text is not looked at."""

HEADER_CHARACTERS: Final = 8 * 1024
"""The same of a header, as what it takes grows with the square."""

MOST_FEEDS: Final = 20
"""Of a page; a weblog has some, each with another selection."""

_LINK: Final = re.compile(r"<([^<>]*)>((?:\s*;\s*[^\s=;,]+\s*(?:=\s*(?:\"[^\"]*\"|[^\s;,\"]+))?)*)")
_VALUE: Final = r"\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))"
_REL: Final = re.compile(r";\s*rel" + _VALUE, re.IGNORECASE)
_TYPE: Final = re.compile(r";\s*type" + _VALUE, re.IGNORECASE)
_FEED_TYPES: Final = frozenset(
    {"application/rss+xml", "application/atom+xml", "application/feed+json", "application/json"}
)


class Links(HTMLParser):
    """Gathers links; of each relation the first counts. Nothing is followed or unfolded."""

    def __init__(self) -> None:
        super().__init__()
        self.hub: str | None = None
        self.own: str | None = None
        """What it calls itself."""
        self.feeds: list[str] = []
        """As written, without repetitions."""
        self._in_body = False

    def note_headers(self, headers: Iterable[str]) -> None:
        """Take what `Link` headers say."""
        for header in headers:
            for target, parameters in _LINK.findall(header[:HEADER_CHARACTERS]):
                if (rel := _REL.search(parameters)) is not None:
                    kind = _TYPE.search(parameters)
                    self._note(_given(rel), target, "" if kind is None else _given(kind))

    def _note(self, rels: str, target: str, kind: str) -> None:
        named = rels.lower().split()
        if "hub" in named:
            self.hub = self.hub or target
        if "self" in named:
            self.own = self.own or target
        is_feed = "alternate" in named and kind.partition(";")[0].strip().lower() in _FEED_TYPES
        if is_feed and target not in self.feeds and len(self.feeds) < MOST_FEEDS:
            self.feeds.append(target)

    def feed(self, data: str) -> None:
        """See `HTMLParser`; what follows broken text is not looked at."""
        # What it raises of sections with unknown keywords, and of numbers with thousands of digits.
        with contextlib.suppress(AssertionError, ValueError):
            super().feed(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        # What a visitor wrote into a page's text is not the page's own word.
        self._in_body = self._in_body or tag in ("body", "entry", "item")
        if tag.rpartition(":")[2] == "link" and not self._in_body:
            given = {name: value or "" for name, value in attrs}
            self._note(given.get("rel", ""), given.get("href", ""), given.get("type", ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """See `HTMLParser`."""
        self._in_body = self._in_body and tag not in ("entry", "item")


def _given(match: re.Match[str]) -> str:
    return match.group(1) or match.group(2) or ""
