"""From a response to what Freshet is told of it."""

import time
from datetime import UTC
from email.utils import parsedate_to_datetime

from msgspec.structs import replace
from scrapy.http import Response

from scrapy_freshet.messages import MOST_RETRY_AFTER_SECONDS, CrawlOutcome, CrawlRequest
from scrapy_freshet.moving import host_of, is_same_page, joined, target_of

NOT_MODIFIED = 304
REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""They come here where Scrapy does not follow them."""

GONE = frozenset({404, 410})


def outcome_of(
    request: CrawlRequest, response: Response, now: float, own_status: int | None = None
) -> CrawlOutcome:
    """What a response says of the page; of content, the digest is yet to come.

    Args:
        request: that it answers, be it after redirects.
        response: the last one.
        now: when it was read, Unix seconds.
        own_status: what the page's own host answered last; None: it has not, or nobody noted it.
    """
    status = response.status
    told = CrawlOutcome(request.url, request.host, request.request_id, now, http_status=status)
    told = replace(told, group=address_of(request, response))
    if has_content(status):
        return told
    if status == NOT_MODIFIED:
        return replace(told, result="not_modified")
    if status in GONE:
        return replace(told, result="gone")
    location = response.headers.get(b"Location")
    if location and status in REDIRECTS:
        target = joined(response, location)
        if not is_same_page(request.url, target):
            return replace(redirected(request, status, target, now), group=told.group)
    if not _is_of_its_host(request, response):
        # Another host is in trouble, and the page's own has done what it can.
        return replace(told, result="failed", http_status=own_status)
    wait = retry_after(response.headers.get(b"Retry-After"), now)
    return replace(told, result="failed", retry_after_seconds=wait)


def address_of(request: CrawlRequest, response: Response) -> str | None:
    """The address of the page's host; None: it is not known, as another host has answered in the
    end, a proxy, or a cache."""
    came_by = {} if response.request is None else response.request.meta
    if response.ip_address is None or came_by.get("proxy"):
        return None
    return str(response.ip_address) if _is_of_its_host(request, response) else None


def _is_of_its_host(request: CrawlRequest, response: Response) -> bool:
    """Whether the page's own host has answered in the end."""
    return host_of(response.url) == host_of(request.url)


def redirected(request: CrawlRequest, status: int, target: str, now: float) -> CrawlOutcome:
    """What is said of a page that leads elsewhere.

    Args:
        request: for the page.
        status: that its address answers with.
        target: the other address.
        now: when that was found, Unix seconds.
    """
    told = CrawlOutcome(request.url, request.host, request.request_id, now, "redirected")
    return replace(told, http_status=status, redirected_to=target_of(target))


def has_content(status: int) -> bool:
    """Whether a response with this status brings the page's content."""
    return 200 <= status < 300


def retry_after(header: bytes | None, now: float | None = None) -> float | None:
    """Seconds that a server asks to be left alone; None: it does not say.

    Args:
        header: seconds or a date, as RFC 9110 has it; anything else says nothing.
        now: Unix seconds.
    """
    if header is None:
        return None
    text = header.decode("latin-1").strip()
    if text.isdecimal() and text.isascii():
        return min(float(text[:20]), MOST_RETRY_AFTER_SECONDS)
    try:
        at = parsedate_to_datetime(text)
        # Without a zone, as in C's asctime, a date of HTTP is of Greenwich.
        until = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(until - (time.time() if now is None else now), 0.0), MOST_RETRY_AFTER_SECONDS)
