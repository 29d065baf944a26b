"""From a known URL, as crawlers report it, to an outcome. Pure.

URLFrontier's message has no result: it has the time from which the URL may be fetched again, and
metadata. Crawlers of whatever kind say it by `freshet.result` or `freshet.digest`; StormCrawler's
own names are understood too, where its `metadata.persist` lets them pass. When a page is crawled
again is not for its crawler to say; but a time of 0 says, by the API, that it is not to be: without
any other word that is `gone`, which is looked at ever more rarely.

A redirect leads to another page, which is none of this outcome's. One to the page itself (a cookie
is set on the way) has not got it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

import ada_url

from shared.contracts.fields import (
    MAX_DIGEST_LENGTH,
    MAX_NAMED_GROUP_LENGTH,
    MAX_URL_LENGTH,
    Result,
)
from shared.contracts.identity import BadUrl, identify
from shared.discovery.dates import seconds_until

REQUEST_ID: Final = "freshet.request-id"
GIVEN_AT: Final = "freshet.given-at"
RESULT: Final = "freshet.result"
CRAWLED_AT: Final = "freshet.crawled-at"

_DIGESTS: Final = ("freshet.digest", "signature")
_STATUSES: Final = ("freshet.status", "fetch.statusCode")
_RETRY_AFTER: Final = ("freshet.retry-after", "protocol.retry-after", "retry-after")
_GROUPS: Final = ("freshet.group", "protocol._response.ip_", "_response.ip_")
"""Of StormCrawler the address that it connected to, where it keeps what protocols say."""

_ERRORS: Final = ("fetch.exception", "error.cause")
_ROBOTS: Final = "robots.txt"
"""What StormCrawler names as the cause where it forbids a page."""

_TARGETS: Final[Mapping[Result, tuple[str, ...]]] = {
    "redirected": ("freshet.redirected-to", "_redirTo"),
    "canonical": ("freshet.canonical-url",),
}

_RESULTS: Final[Mapping[str, Result]] = {name: name for name in get_args(Result)}
_NOT_MODIFIED: Final = 304
_GONE: Final = frozenset({404, 410})
_MOST_RETRY_AFTER: Final = 1e9


class Found(NamedTuple):
    """What a crawl found."""

    result: Result | None
    digest: str | None
    http_status: int | None
    retry_after_seconds: float | None
    redirected_to: str | None = None
    canonical_url: str | None = None
    is_clear: bool = True
    """Whether anything was said of it; else it is a guess."""


def found_of(url: str, metadata: Mapping[str, str], refetchable_from: int, now: float) -> Found:
    """What the metadata of a known URL say.

    Args:
        url: canonical.
        metadata: the first value of each key.
        refetchable_from: Unix seconds; 0: the crawler wants it never again.
        now: Unix seconds.
    """
    status = _status(_first(metadata, _STATUSES))
    wait = _retry_after(_first(metadata, _RETRY_AFTER), now)
    result, digest, is_clear = _result(metadata, status, wants_again=refetchable_from > 0)
    if result is None or result not in _TARGETS:
        return Found(result, digest, status, wait, is_clear=is_clear)
    target = _target(url, _first(metadata, _TARGETS[result]))
    if target is not None and _is_same(url, target):
        return Found("failed", None, status, wait)
    if result == "redirected":
        return Found(result, None, status, wait, redirected_to=target)
    return Found(result, None, status, wait, canonical_url=target)


def _target(url: str, written: str) -> str | None:
    """Where a page leads to, as it says it, from its own address on; None: it is no URL that a
    message could have."""
    try:
        target = ada_url.join_url(url, written) if written else ""
    except ValueError:
        return None
    return target if 0 < len(target) <= MAX_URL_LENGTH else None


def _is_same(url: str, target: str) -> bool:
    try:
        return identify(target).url == url
    except BadUrl:
        return False


def _result(
    metadata: Mapping[str, str], status: int | None, *, wants_again: bool
) -> tuple[Result | None, str | None, bool]:
    said = _RESULTS.get(metadata.get(RESULT, ""))
    digest = _first(metadata, _DIGESTS)[:MAX_DIGEST_LENGTH] or None
    if said is not None:
        return said, digest, True
    if status is not None and not 200 <= status < 300:
        is_target_known = bool(_first(metadata, _TARGETS["redirected"]))
        return _by_status(status, is_target_known=is_target_known), None, True
    if metadata.get("error.cause") == _ROBOTS:
        return "disallowed", None, True
    if _first(metadata, _ERRORS):
        was_reached = status is not None or digest is not None
        return "failed" if wants_again or was_reached else "gone", None, True
    if digest is not None:
        return None, digest, True
    # With neither, nobody knows. A page that is crawled in vain costs a crawl; one that is not, its
    # freshness.
    return ("changed", None, False) if wants_again else ("gone", None, True)


def _by_status(status: int, *, is_target_known: bool) -> Result:
    if status == _NOT_MODIFIED:
        return "not_modified"
    if 300 <= status < 400 and is_target_known:
        return "redirected"
    return "gone" if status in _GONE else "failed"


def given_at_of(
    metadata: Mapping[str, str], requested_at: float | None, given_at: float | None, now: float
) -> float | None:
    """When a request was handed out, the same however often, late and where its answer is put.

    The answer brings it back; else what is known here counts, else when the request was made. Who
    says a time of the future, or one before the request, is not believed. None: nobody knows.

    Args:
        metadata: of the answer.
        requested_at: when the request was made; None: not known.
        given_at: when it was handed out here; None: it was not.
        now: Unix seconds.
    """
    earliest = requested_at if requested_at is not None and requested_at <= now else None
    said = _number(metadata.get(GIVEN_AT, ""))
    if said is not None and (earliest or 0.0) <= said <= now:
        return said
    return earliest if given_at is None else given_at


def crawled_at_of(metadata: Mapping[str, str], given_at: float | None, now: float) -> float:
    """When the content was read: as the crawler says, else when it was handed out.

    What changes between the two is crawled once more; had the time of the answer been taken, it
    would pass for seen.
    """
    earliest = 0.0 if given_at is None else given_at
    said = _number(metadata.get(CRAWLED_AT, ""))
    if said is not None and earliest <= said <= now:
        return said
    return now if given_at is None else given_at


def plain(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The first value of each key of a message's metadata."""
    return {key: found.values[0] for key, found in metadata.items() if found.values}


def _first(metadata: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((metadata[key] for key in keys if metadata.get(key)), "")


def group_of(metadata: Mapping[str, str]) -> str | None:
    """What the host shares with others, as the address that it was found at; None: nobody says so,
    or says what no group can be."""
    said = _first(metadata, _GROUPS)
    is_visible = said.isascii() and said.isprintable() and " " not in said
    return said if is_visible and 0 < len(said) <= MAX_NAMED_GROUP_LENGTH else None


def _status(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) == 3 else 0
    return number if number >= 100 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _retry_after(text: str, now: float) -> float | None:
    seconds = seconds_until(text, now)
    return None if seconds is None else min(seconds, _MOST_RETRY_AFTER)
