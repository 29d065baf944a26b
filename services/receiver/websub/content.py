"""What hubs send: signed, with the entries that are new (fat), or without them (thin). Pure."""

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin
from xml.etree.ElementTree import Element, ParseError

import msgspec
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from services.receiver.texts import trimmed
from shared.contracts.identity import BadUrl, identify
from shared.discovery.dates import believable, observed_at, read_date
from shared.discovery.surrogates import mended
from shared.runtime.pings import Ping

MOST_ENTRIES: Final = 1_000

_METHODS: Final = {
    "sha1": hashlib.sha1,
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
}
_DATES: Final = ("updated", "modified", "pubDate", "date", "published")

Entry = tuple[str, str | None]
"""(URL, when it changed, as written)."""


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
    for url, written in _entries(body):
        try:
            page = identify(urljoin(own.url, url.strip()))
        except (BadUrl, ValueError):
            continue
        stated = believable(read_date(written or ""), now)
        at = None if stated is None else observed_at(stated, now)
        if at is not None and now - at > max_age_seconds:
            continue
        pings.setdefault(page.url, Ping(page.url, page.host, at))
        if len(pings) > MOST_ENTRIES:
            break
    return list(pings.values())


def _entries(body: bytes) -> Iterator[Entry]:
    body = trimmed(body)
    if body.startswith(b"{"):
        yield from _of_json(body)
        return
    try:
        root = fromstring(mended(body))
    except (ParseError, DefusedXmlException, ValueError, LookupError):
        return
    for element in root.iter():
        if _name(element) in ("entry", "item"):
            url = _link(element)
            if url is not None:
                yield url, _date(element)


def _of_json(body: bytes) -> Iterator[Entry]:
    try:
        feed: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    items = feed.get("items")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("url"), str):
            at = item.get("date_modified") or item.get("date_published")
            yield item["url"], at if isinstance(at, str) else None


def _name(element: Element) -> str:
    """Without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _link(entry: Element) -> str | None:
    """Atom's `<link href rel="alternate">`, RSS's `<link>text</link>`, or its `<guid>`, unless
    that says that it is no link, or is none."""
    guid = None
    for child in entry:
        name, text = _name(child), (child.text or "").strip()
        if name == "link" and child.get("rel", "alternate") == "alternate":
            url = child.get("href") or text
            if url:
                return url
        if name == "guid" and child.get("isPermaLink", "true") == "true" and "://" in text:
            guid = text
    return guid


def _date(entry: Element) -> str | None:
    said = {_name(child): child.text for child in entry}
    return next((said[name] for name in _DATES if said.get(name)), None)
