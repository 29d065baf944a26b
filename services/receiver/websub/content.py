"""What hubs send: signed, with the entries that are new (fat), or without them (thin). Pure."""

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin
from xml.etree.ElementTree import Element

import msgspec

from services.receiver.texts import NotXml, read_xml, trimmed
from shared.contracts.escapes import whole_characters
from shared.contracts.fields import MAX_URL_LENGTH
from shared.contracts.identity import BadUrl, identify
from shared.discovery.dates import believable, observed_at, read_date
from shared.discovery.encodings import UNREADABLE
from shared.runtime.pings import Ping

MOST_ENTRIES: Final = 1_000

_METHODS: Final = {
    "sha1": hashlib.sha1,
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
}
_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
_DATES: Final = ("updated", "modified", "pubDate", "date", "published")

Entry = tuple[str, str, str | None]
"""(What its URL is from, URL, when it changed, as written)."""


def is_signed(header: str, secret: str, body: bytes) -> bool:
    """Whether `X-Hub-Signature` is the secret's over the body; takes as long if it is not."""
    method, _, shown = header.strip().partition("=")
    made = _METHODS.get(method.lower())
    if made is None:
        return False
    own = hmac.new(secret.encode(), body, made).hexdigest()
    return hmac.compare_digest(own.encode(), shown.lower().encode("utf-8", "surrogatepass"))


def pings_of(topic: str, body: bytes, now: float, max_age_seconds: float) -> list[Ping]:
    """The pages that content is about: its entries, and the topic itself.

    Args:
        topic: whose content it is.
        body: Atom, RSS or JSON Feed; anything else is about the topic alone.
        now: Unix seconds.
        max_age_seconds: many hubs send the whole feed each time, and what is older in it is no
            news.
    """
    own = identify(topic)
    pings = {own.url: Ping(own.url, own.host)}
    for base, url, written in _entries(body, own.url):
        try:
            joined = urljoin(base, url.strip())
            page = identify(joined)
        except (BadUrl, ValueError):
            continue
        if UNREADABLE in joined:
            continue
        stated = believable(read_date(written or ""), now)
        at = None if stated is None else observed_at(stated, now)
        if at is not None and now - at > max_age_seconds:
            continue
        pings.setdefault(page.url, Ping(page.url, page.host, at))
        if len(pings) > MOST_ENTRIES:
            break
    return list(pings.values())


def _entries(body: bytes, own: str) -> Iterator[Entry]:
    text = trimmed(body)
    if text.startswith(b"{"):
        yield from _of_json(text, own)
        return
    try:
        root = read_xml(body)
    except NotXml:
        return
    for element, base in _with_bases(root, own):
        if _name(element) in ("entry", "item"):
            link = _link(element, base)
            if link is not None:
                yield *link, _date(element)


def _with_bases(root: Element, own: str) -> Iterator[tuple[Element, str]]:
    """All elements in their order, each with what URLs in it are from (XML Base, as RFC 4287 has
    it): `own` where nothing is said."""
    ahead = [(root, own)]
    while ahead:
        element, base = ahead.pop()
        base = _base_of(element, base)
        yield element, base
        ahead += ((child, base) for child in reversed(element))


def _base_of(element: Element, base: str) -> str:
    try:
        joined = urljoin(base, element.get(_BASE, "").strip())
    except ValueError:
        return base
    # One that grew with each element would take long.
    return joined if len(joined) <= MAX_URL_LENGTH else base


def _of_json(body: bytes, own: str) -> Iterator[Entry]:
    try:
        feed: Any = msgspec.json.decode(whole_characters(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    items = feed.get("items")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("url"), str):
            at = item.get("date_modified") or item.get("date_published")
            yield own, item["url"], at if isinstance(at, str) else None


def _name(element: Element) -> str:
    """Without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _link(entry: Element, base: str) -> tuple[str, str] | None:
    """Atom's `<link href rel="alternate">`, RSS's `<link>text</link>`, or its `<guid>`, unless
    that says that it is no link, or is none; and before it, what it is from."""
    guid = None
    for child in entry:
        name, text = _name(child), (child.text or "").strip()
        if name == "link" and child.get("rel", "alternate") == "alternate":
            url = child.get("href") or text
            if url:
                return _base_of(child, base), url
        if name == "guid" and child.get("isPermaLink", "true") == "true" and "://" in text:
            guid = text
    return None if guid is None else (base, guid)


def _date(entry: Element) -> str | None:
    said = {_name(child): child.text for child in entry}
    return next((said[name] for name in _DATES if said.get(name)), None)
