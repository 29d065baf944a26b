"""From a response to what Freshet is told of it."""

import time
from email.utils import parsedate_to_datetime

from scrapy.http import Response

from scrapy_freshet.messages import MOST_RETRY_AFTER_SECONDS, CrawlOutcome, CrawlRequest

NOT_MODIFIED = 304
GONE = frozenset({404, 410})


def outcome_of(request: CrawlRequest, response: Response, now: float) -> CrawlOutcome:
    """What a response says of the page; of content, the digest is yet to come.

    Args:
        request: that it answers, be it after redirects.
        response: the last one.
        now: when it was read, Unix seconds.
    """
    status = response.status
    told = CrawlOutcome(request.url, request.host, request.request_id, now, http_status=status)
    if has_content(status):
        return told
    fields = {name: getattr(told, name) for name in told.__struct_fields__}
    if status == NOT_MODIFIED:
        return CrawlOutcome(**fields | {"result": "unchanged"})
    if status in GONE:
        return CrawlOutcome(**fields | {"result": "gone"})
    wait = retry_after(response.headers.get(b"Retry-After"), now)
    return CrawlOutcome(**fields | {"result": "failed", "retry_after_seconds": wait})


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
        at = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(at - (time.time() if now is None else now), 0.0), MOST_RETRY_AFTER_SECONDS)
