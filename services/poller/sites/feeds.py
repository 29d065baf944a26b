"""RSS and Atom by feedparser, and JSON Feed, <https://www.jsonfeed.org>. Pure.

feedparser reads whatever is near to a feed, and takes minutes for some texts that are made for it:
call this where it can be ended (`feed_process`).
"""

import io
from typing import Any, Final
from urllib.parse import urljoin

import feedparser
import msgspec

from services.poller.sites.entries import MOST_ENTRIES, MOST_TEXT, BadDocument, Entry, Summary
from shared.contracts.escapes import whole_characters
from shared.discovery.surrogates import mended

_DATES: Final = ("updated", "published", "created")
_SHORTEST_TTL: Final = 60.0


def read_feed(url: str, text: bytes) -> tuple[list[Entry], Summary]:
    """A feed's entries, absolute URLs all of them.

    Args:
        url: where it came from.
        text: of it.

    Raises:
        BadDocument: it is no feed.
    """
    is_json = text.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    entries, hint = _of_json(text) if is_json else _of_xml(url, text)
    joined = [Entry(_joined(url, entry.url), entry.stated) for entry in entries[:MOST_ENTRIES]]
    return [entry for entry in joined if entry.url], Summary("feed", hint)


def _of_json(text: bytes) -> tuple[list[Entry], float | None]:
    try:
        feed: Any = msgspec.json.decode(whole_characters(text.removeprefix(b"\xef\xbb\xbf")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadDocument(f"not JSON: {error}") from error
    version, items = feed.get("version"), feed.get("items")
    if not isinstance(version, str) or "jsonfeed.org" not in version or not isinstance(items, list):
        raise BadDocument("JSON, but no JSON Feed")
    found = [item for item in items if isinstance(item, dict)]
    stated = [item.get("date_modified") or item.get("date_published") for item in found]
    return [
        Entry(_short(item.get("url")), _short(at)) for item, at in zip(found, stated, strict=True)
    ], None


def _of_xml(url: str, text: bytes) -> tuple[list[Entry], float | None]:
    # Of a file, never of a string: that would be opened if it were a file's name or a URL.
    file = io.BytesIO(mended(text))
    # An xml:base may be relative itself, so where the feed came from must be known in there.
    place = {"content-location": url}
    parsed = feedparser.parse(
        file, sanitize_html=False, resolve_relative_uris=False, response_headers=place
    )
    if not parsed.version:
        raise BadDocument("it is neither a sitemap nor a feed")
    entries = [Entry(_link_of(entry, url), _date_of(entry)) for entry in parsed.entries]
    ttl = _short(parsed.feed.get("ttl"))
    seconds = float(ttl) * 60.0 if ttl.isdecimal() and len(ttl) < 8 else None
    return entries, None if seconds is None else max(seconds, _SHORTEST_TTL)


def _link_of(entry: Any, url: str) -> str:
    # A podcast's entries may have no page, but a file that they enclose.
    link = _short(entry.get("link"))
    # An empty link leads to the feed itself, which is none of its pages.
    return "" if link == url else link


def _date_of(entry: Any) -> str:
    # Its own `get` takes one date for another, and warns that it will not for ever.
    said = (_short(dict.get(entry, name)) for name in _DATES)
    return next((date for date in said if date), "")


def _short(value: Any) -> str:
    return value.strip() if isinstance(value, str) and len(value) <= MOST_TEXT else ""


def _joined(base: str, url: str) -> str:
    try:
        return urljoin(base, url) if url else ""
    except ValueError:
        return ""
