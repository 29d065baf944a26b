"""The messages that a crawler reads and writes, as far as it needs them.

They are Freshet's contract (`freshet contract` prints it), written down again, so that a crawler
installs none of the workers. Fields that are not named here pass.
"""

from typing import Literal

from msgspec import Struct

CRAWL_REQUESTS = "crawl-requests"
CRAWL_OUTCOMES = "crawl-outcomes"
HOST_LIMITS = "host-limits"
DISCOVERIES = "discoveries"

TRACE_HEADER = "traceparent"
"""Of a request that is traced; its outcome carries the same."""

Trace = list[tuple[str, bytes]] | None
"""Such headers."""

MOST_RETRY_AFTER_SECONDS = 1e9
MOST_DIGEST_CHARACTERS = 256
MOST_URL_CHARACTERS = 2048
MOST_LINKS_A_MESSAGE = 400
"""So many of the longest URLs stay below what a broker takes."""

Result = Literal[
    "changed",
    "unchanged",
    "not_modified",
    "gone",
    "redirected",
    "canonical",
    "disallowed",
    "failed",
]


class CrawlRequest(Struct, frozen=True):
    """`crawl-requests`: please crawl this page now."""

    request_id: str
    url: str
    host: str
    deadline_at: float
    """Unix seconds: without an outcome by then, the page is asked for again."""


class CrawlOutcome(Struct, frozen=True, omit_defaults=True):
    """`crawl-outcomes`: what a crawl found."""

    url: str
    host: str
    request_id: str
    crawled_at: float
    """Unix seconds."""
    result: Result | None = None
    digest: str | None = None
    """Of the content that matters: another one than the last means changed."""
    http_status: int | None = None
    retry_after_seconds: float | None = None
    redirected_to: str | None = None
    """Of `redirected`: where to."""
    canonical_url: str | None = None
    """Of `canonical`: the URL to keep."""
    group: str | None = None
    """What the host shares with others: the address that was connected to."""


class Discovery(Struct, frozen=True):
    """`discoveries`: a page that was crawled links to these URLs."""

    url: str
    links: list[str]
    found_at: float
    """Unix seconds."""


class HostLimit(Struct, frozen=True):
    """`host-limits`: what a host's robots.txt asks for.

    Schedulers that keep crawl-delays apart from operators' limits go by `only`; others take
    `max_crawls_per_second`, and the last message of a host stands.
    """

    host: str
    max_crawls_per_second: float | None
    crawl_delay_seconds: float
    """0: nothing any more."""
    only: Literal["crawl-delay"] = "crawl-delay"
