"""Sitemaps and their indexes, <https://www.sitemaps.org/protocol.html>, read as they come.

By expat itself, in bounded memory: no tree is built, an entry is given on as soon as it ends.
Entities that a document declares are refused, so nothing unfolds; expat looks nothing up. Names of
namespaces are not looked at, since many sites have them wrong: what counts is that an element has
the prefix of the root, which keeps `image:loc` apart from `loc`.
"""

import re
from collections import Counter
from typing import Any, Final
from xml.parsers import expat

from services.poller.sites.entries import (
    MOST_ENTRIES,
    MOST_TEXT,
    BadDocument,
    Entry,
    Give,
    Summary,
)
from shared.discovery.encodings import UNREADABLE
from shared.units import SECONDS_PER_DAY

MOST_DEPTH: Final = 16
TOKEN_BYTES: Final = 256 * 1024
"""A tag, a comment: expat begins it anew with each part that comes, so it must not grow."""

_OF_ENTRY: Final = {"urlset": "url", "sitemapindex": "sitemap"}
_NEWS_DATE: Final = "publication_date"
_HOUR_SECONDS: Final = 3600.0
_FREQUENCIES: Final = {
    "always": 60.0,
    "hourly": _HOUR_SECONDS,
    "daily": SECONDS_PER_DAY,
    "weekly": 7 * SECONDS_PER_DAY,
    "monthly": 30 * SECONDS_PER_DAY,
    "yearly": 365 * SECONDS_PER_DAY,
}


class SitemapReader:
    """Reads a sitemap or an index in XML, as UTF-8 whatever it declares (`decoding`)."""

    def __init__(self, give: Give) -> None:
        self._give = give
        self._path: list[str] = []
        self._prefix = ""
        self._said: dict[str, str] = {}
        self._text: list[str] | None = None
        self._size = 0
        self._entries = self._bad = 0
        self._fed = 0
        self._frequencies: Counter[str] = Counter()
        self._kind = ""
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._declares_entity

    def feed(self, part: bytes) -> None:
        """Take the next bytes.

        Raises:
            BadDocument: says why.
        """
        self._parse(part, is_last=False)
        if self._fed - self._parser.CurrentByteIndex > TOKEN_BYTES:
            raise BadDocument(f"a tag or a comment has more than {TOKEN_BYTES} bytes")

    def close(self) -> Summary:
        """The end was reached.

        Raises:
            BadDocument: it was not the end of the document.
        """
        self._parse(b"", is_last=True)
        most = self._frequencies.most_common(1)
        return Summary(self._kind, _FREQUENCIES[most[0][0]] if most else None, self._bad)

    def _parse(self, part: bytes, *, is_last: bool) -> None:
        self._fed += len(part)
        try:
            self._parser.Parse(part, is_last)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise BadDocument(f"not well-formed XML: {error}") from error

    def _declares_entity(self, *_: Any) -> None:
        raise BadDocument("it declares entities")

    def _start(self, name: str, _: dict[str, str]) -> None:
        prefix, local = name.rpartition(":")[::2]
        if not self._path:
            if local not in _OF_ENTRY:
                raise BadDocument(f"<{name[:40]}> is neither a sitemap nor a feed")
            self._prefix = prefix
            self._kind = "index" if local == "sitemapindex" else "sitemap"
        own = prefix == self._prefix
        # Elements of others cannot be mistaken for ours: no name of ours has a colon.
        self._path.append(local if own else f":{local}")
        if len(self._path) > MOST_DEPTH:
            raise BadDocument(f"more than {MOST_DEPTH} elements within one another")
        if len(self._path) == 2 and own and local == _OF_ENTRY[self._path[0]]:
            self._said = {}
        is_value = own and len(self._path) == 3 and local in ("loc", "lastmod", "changefreq")
        is_news = not own and local == _NEWS_DATE and self._path[-2] == ":news"
        self._text, self._size = ([], 0) if is_value or is_news else (None, 0)

    def _characters(self, text: str) -> None:
        if self._text is not None and self._size <= MOST_TEXT:
            self._size += len(text)
            self._text.append(text)

    def _end(self, _: str) -> None:
        name = self._path.pop()
        if self._text is not None and self._path and self._path[1:2] in (["url"], ["sitemap"]):
            text = "".join(self._text).strip()
            if self._size <= MOST_TEXT and text:
                self._said.setdefault(name.lstrip(":"), text)
        self._text = None
        if len(self._path) == 1 and name == _OF_ENTRY[self._path[0]]:
            self._ended()

    def _ended(self) -> None:
        said, self._said = self._said, {}
        url, self._entries = said.get("loc"), self._entries + 1
        if url is None or self._entries > MOST_ENTRIES:
            return
        frequency = said.get("changefreq", "").lower()
        if frequency in _FREQUENCIES:
            self._frequencies[frequency] += 1
        if UNREADABLE in url:
            self._bad += 1
            return
        self._give(Entry(url, said.get("lastmod") or said.get(_NEWS_DATE, "")))


_URL_LINE: Final = re.compile(r"https?://\S{1,4096}")


_NO_LIST: Final = "it is neither XML nor JSON, nor a list of URLs"
_MOST_BAD_LINES: Final = 1_000
"""Of a text that has fewer good ones: the rest is not waited for."""


class TextReader:
    """Reads a sitemap in plain text, a URL a line. Bad lines are passed over, unless they are more
    than the good ones: then it is something else."""

    def __init__(self, give: Give) -> None:
        self._give = give
        self._rest = b""
        self._in_long_line = False
        self._entries = 0
        self._bad = 0

    def feed(self, part: bytes) -> None:
        """Take the next bytes.

        Raises:
            BadDocument: it is no list of URLs.
        """
        # Lines may end with either of both, or with both: an empty one says nothing.
        *lines, self._rest = (self._rest + part.replace(b"\r", b"\n")).split(b"\n")
        for line in lines:
            self._line(line)
            self._in_long_line = False
        if len(self._rest) > MOST_TEXT:
            self._line(self._rest)
            self._in_long_line, self._rest = True, b""
        if self._bad > max(self._entries, _MOST_BAD_LINES):
            raise BadDocument(_NO_LIST)

    def close(self) -> Summary:
        """The end was reached.

        Raises:
            BadDocument: it is no list of URLs.
        """
        self._line(self._rest)
        if self._bad > self._entries:
            raise BadDocument(_NO_LIST)
        return Summary("sitemap", None, self._bad)

    def _line(self, line: bytes) -> None:
        if self._in_long_line:
            # It was counted when it had become too long.
            return
        text = line.decode("utf-8", "replace").strip() if len(line) <= MOST_TEXT else "too long"
        if not text:
            return
        if not _URL_LINE.fullmatch(text) or UNREADABLE in text:
            self._bad += 1
            return
        self._entries += 1
        if self._entries <= MOST_ENTRIES:
            self._give(Entry(text, ""))
