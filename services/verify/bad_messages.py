"""Messages that nobody should send, for every topic, and what must become of each."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shared.contracts.identity import identify, shard_of
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEMAND_CURVES,
    HOST_LIMITS,
    HOST_PARAMETERS,
    MULTIPLIERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
    Topic,
)

FAR_FUTURE = 9e10
"""Within what a time may be, and long after every clock."""

LONG_URL = "https://h0.example/" + "a" * 1_000_000
HOSTILE_URLS = (
    "",
    "https://h0.example/" + "a" * 3_000,
    LONG_URL,
    "not a url",
    "//h0.example/0",
    "javascript:alert(1)",
    "ftp://h0.example/0",
    "file:///etc/passwd",
    "https://user:secret@h0.example/0",
    "https://h0.example/\x00",
    "https://h0.example/\n0",
    "https://h0.example/\u202e",
    "https:///",
)

STAGES = {
    SIGNALS.name: "ingester",
    PAGE_SIGNALS.name: "estimator",
    CRAWL_OUTCOMES.name: "estimator",
    PAGE_UPDATES.name: "estimator",
    HOST_LIMITS.name: "estimator",
    PAGE_PARAMETERS.name: "scheduler",
    HOST_PARAMETERS.name: "scheduler",
    BANDWIDTH.name: "coordinator",
    DEMAND_CURVES.name: "coordinator",
    MULTIPLIERS.name: "coordinator",
}
"""Who sets a topic's bad messages aside.

`crawl-requests` is read by the crawler fleet, which is its operator's: the simulated one refuses
what it cannot read and goes on. `dead-letters` is read by people.
"""

_NUMBERS = {
    SIGNALS.name: ("observed_at",),
    PAGE_SIGNALS.name: ("page_id", "observed_at"),
    CRAWL_REQUESTS.name: ("page_id", "requested_at", "deadline_at", "crawl_value", "threshold"),
    CRAWL_OUTCOMES.name: ("crawled_at", "http_status", "retry_after_seconds"),
    PAGE_UPDATES.name: ("importance", "max_age_days", "updated_at", "crawled_at"),
    PAGE_PARAMETERS.name: (
        *("page_id", "unsignalled_change_rate", "signal_evidence", "signal_rate", "updated_at"),
    ),
    HOST_PARAMETERS.name: ("unsignalled_change_rate", "signal_evidence", "updated_at"),
    HOST_LIMITS.name: ("max_crawls_per_second", "blocked_until", "max_open_requests"),
    BANDWIDTH.name: ("crawls_per_second", "set_at"),
    DEMAND_CURVES.name: (
        *("shard", "reported_at", "pages", "achieved_crawls_per_second", "host_limited_share"),
        "marginal_value",
    ),
    MULTIPLIERS.name: (
        *("version", "computed_at", "effective_at", "multiplier", "crawls_per_second"),
        "first_slot",
    ),
}
_TEXTS = {
    SIGNALS.name: ("url", "source"),
    PAGE_SIGNALS.name: ("url", "host", "source"),
    CRAWL_REQUESTS.name: ("url", "host", "request_id", "reason"),
    CRAWL_OUTCOMES.name: ("url", "result"),
    PAGE_UPDATES.name: ("url", "op"),
    PAGE_PARAMETERS.name: ("host",),
    HOST_PARAMETERS.name: ("host",),
    HOST_LIMITS.name: ("host",),
    BANDWIDTH.name: (),
    DEMAND_CURVES.name: ("instance",),
    MULTIPLIERS.name: (),
}
_URL_TOPICS = (SIGNALS, CRAWL_OUTCOMES, PAGE_UPDATES)
"""Whose URLs are checked, as they come from outside."""


@dataclass(frozen=True, slots=True)
class Injection:
    """A record to be written, and its fate."""

    what: str
    topic: Topic
    value: bytes | None
    key: bytes | None
    partition: int
    stage: str | None
    """Who dead-letters it; None: nobody, `rule` says why it is harmless."""
    rule: str = ""
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A good message of a topic, to be spoilt, and where it belongs."""

    topic: Topic
    message: dict[str, Any]
    key: bytes | None
    partition: int

    def bad(self, what: str, value: bytes | None, **more: Any) -> Injection:
        """A record that somebody must set aside, where there is somebody."""
        place = {"key": self.key, "partition": self.partition} | more
        stage = STAGES.get(self.topic.name)
        rule = "" if stage else "its reader refuses it and goes on"
        return Injection(what, self.topic, value, stage=stage, rule=rule, **place)

    def harmless(self, what: str, rule: str, value: bytes | None, **more: Any) -> Injection:
        """A record that changes nothing, or only what it says."""
        place = {"key": self.key, "partition": self.partition} | more
        return Injection(what, self.topic, value, stage=None, rule=rule, **place)

    def changed(self, **fields: Any) -> bytes:
        """The message with other values; numbers that JSON does not have are written as such."""
        return json.dumps(self.message | fields).encode()


def unreadable(good: Template) -> Iterator[Injection]:
    """What no topic can take."""
    whole = good.changed()
    nested = b'{"nested": ' + b"[" * 20_000 + b"]" * 20_000 + b", "
    yield good.bad("not JSON", b"not json")
    yield good.bad("truncated JSON", whole[: len(whole) // 2])
    yield good.bad("more after the end", whole + b" x")
    yield good.bad("empty", b"")
    yield (
        good.bad("tombstone", None) if good.topic is not HOST_LIMITS else good.bad("null", b"null")
    )
    yield good.bad("null key", b"[]", key=None)
    if good.topic is not HOST_LIMITS:
        yield good.bad("neither key nor value", None, key=None)
    yield good.bad("a number", b"17")
    yield good.bad("a list", b"[" + whole + b"]")
    yield good.bad("no fields", b"{}")
    yield good.bad("not UTF-8", b"\xff\xfe" + whole)
    yield good.bad("a text that is not UTF-8", _with_bad_text(good))
    yield good.bad("deeply nested", b"[" * 30_000 + b"]" * 30_000)
    yield good.bad("deeply nested in an unknown field", nested + whole[1:])
    if good.topic is not MULTIPLIERS:  # as long as brokers take them
        yield good.bad("too long", whole + b" " * 900_000)


def _with_bad_text(good: Template) -> bytes:
    texts = _TEXTS[good.topic.name]
    return good.changed(**{texts[0]: "BAD"}).replace(b"BAD", b"\xff") if texts else b'{"\xff": 1}'


def wrong_fields(good: Template) -> Iterator[Injection]:
    """Fields of wrong types and out of range."""
    for field in _NUMBERS[good.topic.name]:
        for name, value in (("NaN", math.nan), ("infinite", math.inf), ("text", "many")):
            yield good.bad(f"{field}: {name}", good.changed(**{field: value}))
        yield good.bad(f"{field}: -Infinity", good.changed(**{field: -math.inf}))
        spoilt = good.changed(**{field: "BIG"}).replace(b'"BIG"', b"1e999")
        yield good.bad(f"{field}: 1e999", spoilt)
        yield good.bad(f"{field}: negative", good.changed(**{field: -3}))
        yield good.bad(f"{field}: a list", good.changed(**{field: [1]}))
    for field in _TEXTS[good.topic.name]:
        yield good.bad(f"{field}: a number", good.changed(**{field: 5}))
        yield (
            good.bad(f"{field}: null", good.changed(**{field: None}))
            if field != "result"
            else good.bad("neither result nor digest", good.changed(result=None, digest=None))
        )
    if good.topic in _URL_TOPICS:
        for url in HOSTILE_URLS:
            yield good.bad(f"url: {url[:40]!r}", good.changed(url=url))


def wrong_times(good: Template, field: str) -> Injection:
    """A time in the far future."""
    return good.bad(f"{field}: far future", good.changed(**{field: FAR_FUTURE}))


def template_for_host(topic: Topic, page: str, partitions: int, /, **message: Any) -> Template:
    """A message of a host-keyed topic, where it belongs."""
    host = identify(page).host
    return Template(topic, message, host.encode(), shard_of(host, partitions))
