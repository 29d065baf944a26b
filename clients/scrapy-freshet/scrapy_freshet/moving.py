"""Where a page has moved to: what redirects on the way say, and the spider."""

from typing import Any, Final
from urllib.parse import urldefrag, urlsplit

from scrapy import Request
from scrapy.http import Response
from w3lib.url import safe_url_string

from scrapy_freshet.messages import MOST_URL_CHARACTERS

FOR_GOOD: Final = frozenset({301, 308})
"""Statuses of redirects that replace an address; after all others it is still the one to ask."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def moved_to(request: Request) -> tuple[int, str] | None:
    """The status and the target of the redirects by which a page has moved for good.

    Of several in a row, those up to the first that is for the moment count. None: it has not moved.

    Args:
        request: as Scrapy's redirects have left it.
    """
    passed = request.meta.get("redirect_urls") or []
    reasons = request.meta.get("redirect_reasons") or []
    moves = 0
    while moves < min(len(passed), len(reasons)) and reasons[moves] in FOR_GOOD:
        moves += 1
    if not moves:
        return None
    target = [*passed, request.url][moves]
    return None if is_same_page(passed[0], target) else (int(reasons[0]), target)


def joined(response: Response, url: str | bytes) -> str:
    """An address as a response names it, from its own on; empty: it is none."""
    try:
        return response.urljoin(safe_url_string(url))
    except ValueError:
        return ""


def is_same_page(url: str, other: str) -> bool:
    """Whether two addresses are spellings of one page, as far as servers are asked for it."""
    return _plain(url) == _plain(other)


def host_of(url: str) -> str:
    """The host of an address, as Freshet names it: with a port, unless it is the usual one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name
    return name if port in {None, _DEFAULT_PORTS.get(parts.scheme)} else f"{name}:{port}"


def target_of(url: str) -> str | None:
    """A target as outcomes have it; None: it is too long for them."""
    plain = urldefrag(url).url
    return plain if 0 < len(plain) <= MOST_URL_CHARACTERS else None


def _plain(url: str) -> tuple[Any, ...]:
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return (url,)
    host = (parts.hostname or "").removesuffix(".")
    return parts.scheme, host, port, parts.path or "/", parts.query
