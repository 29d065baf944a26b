"""Pages and hosts one by one, as the tables have them and as the rules make them.

The layout of what is packed in the tables is written down here once more: a reader that shares it
with the writer would not see what both forget.
"""

import binascii
import json
import math
import struct
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.policy.estimation.bursts import AGE_BINS, PRIOR_CHANGES
from shared.policy.estimation.first_guesses import (
    INITIAL_CHANGE_RATE,
    INITIAL_PRECISION,
    INITIAL_SHAPE,
)
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.units import SECONDS_PER_DAY

ACTIVITY_BINS: Final = 7
"""Classes of pages by the signals that they ever had: none, 1, from 2, 4, 8, 16 and 64 on."""

SOURCES: Final = 4
"""Kinds of signals that a host tells apart: its first three sources, and all others."""

STEPS: Final = 128
"""In a second: so fine the times of signals are kept where a page has several sources. They are
rounded up, and a year before the page's latest signal at most."""

_OLDEST_STEPS: Final = 2**32 - 2
_NO_SIGNAL: Final = 2**32 - 1

DEPTH: Final = 16
"""Crawl records that are kept of a page."""

_HISTORY: Final = np.dtype(
    [
        ("version", "u1"),
        ("records", "u1"),
        ("pending", "<u2", (SOURCES,)),
        ("multiplier", "<f4"),
        ("last_source", "u1"),
        ("totals", "<u4", (SOURCES,)),
        ("evidence", "<f4", (SOURCES,)),
        ("posterior_shape", "<f4"),
        (
            "record",
            [("interval_days", "<f4"), ("signals", "<u2", (SOURCES,)), ("changed", "u1")],
            (DEPTH,),
        ),
    ]
)
_VERSION: Final = 2
_HOST_DOUBLES: Final = 2 * SOURCES + 2 * AGE_BINS

_PAGES: Final = """
    SELECT p.page_id, p.shard, h.host, p.importance, p.max_age_days, p.first_seen_at,
           p.unsignalled_change_rate, p.signal_evidence, p.signal_rate, p.last_crawled_at,
           p.last_attempt_at, p.last_changed_at, p.last_signal_at, p.updated_at, p.urgent_at,
           p.digest, p.signal_count, p.signals, p.crawls, p.changes, p.failures, p.misses, p.status,
           coalesce(c.name, '') AS page_class, u.url, p.signal_times, p.history
    FROM pages p JOIN hosts h USING (shard, host_id) JOIN page_urls u USING (shard, page_id)
    LEFT JOIN page_classes c ON c.shard = p.shard AND c.number = p.page_class"""
_HOSTS: Final = """
    SELECT host, shard, max_crawls_per_second, blocked_until, crawl_delay, asked_until, failures,
           failed_at, max_open_requests, named_group, named_since, prior_shape, prior_rate,
           prior_precision, sources, learning, factors, quiet_found, quiet_predicted, quiet_belief
    FROM hosts"""


class Damaged(RuntimeError):
    """What is packed in a table is not as it should be."""


@dataclass(frozen=True, slots=True)
class CrawlRecord:
    """What a crawl says of the interval before it."""

    interval_days: float
    """Times the burst multiplier that held; in single precision."""
    signals: tuple[int, ...]
    """By source."""
    changed: bool


@dataclass(slots=True)
class PageState:
    """A page; the columns are those of the table `pages`."""

    page_id: int
    shard: int
    host: str
    importance: float = 1.0
    max_age_days: float = math.inf
    first_seen_at: float = NEVER
    unsignalled_change_rate: float = math.nan
    signal_evidence: float = math.nan
    signal_rate: float = 0.0
    last_crawled_at: float = NEVER
    last_attempt_at: float = NEVER
    last_changed_at: float = NEVER
    last_signal_at: float = NEVER
    updated_at: float = NEVER
    urgent_at: float = NEVER
    digest: int = 0
    signal_count: int = 0
    signals: int = 0
    crawls: int = 0
    changes: int = 0
    failures: int = 0
    misses: int = 0
    """404s among the failures."""
    status: int = ACTIVE
    page_class: str = ""
    """Empty: none."""
    directory: int = 0
    """Of its URL (`directory_of`)."""
    pending: list[int] = field(default_factory=lambda: [0] * SOURCES)
    totals: list[int] = field(default_factory=lambda: [0] * SOURCES)
    last_source: int = 0
    multiplier: float = 1.0
    source_evidence: list[float] = field(default_factory=lambda: [0.0] * SOURCES)
    posterior_shape: float = 0.0
    records: list[CrawlRecord] = field(default_factory=list)
    """The last ones, the oldest first."""
    by_source: list[float] | None = None
    """When each source sent its last signal; None: there was never more than one source."""

    def last_of(self, source: int) -> float:
        """When a source sent its last signal."""
        if self.by_source is not None:
            return self.by_source[source]
        return self.last_signal_at if source == self.last_source else NEVER

    def note_signal(self, source: int, time: float) -> None:
        """A source has sent a signal, its newest."""
        latest = self.last_signal_at
        if self.by_source is None and latest > NEVER and source != self.last_source:
            self.by_source = [NEVER] * SOURCES
            self.by_source[self.last_source] = _rounded(latest, latest)
        if self.by_source is not None:
            self.by_source[source] = _rounded(time, max(latest, time))
        if time > latest:
            self.last_signal_at, self.last_source = time, source

    def watch(self, time: float, signals: int) -> None:
        """So many signals came at a time, none since the latest event: about the last 64 gaps
        between signals say how often they come."""
        before = max(self.last_signal_at, self.last_attempt_at)
        if before == NEVER:
            before = time if self.signal_rate > 0 else self.first_seen_at
        watched = max(before - self.first_seen_at, 0.0) / SECONDS_PER_DAY + 0.5
        days = max(time - before, 0.0) / SECONDS_PER_DAY
        rate = self.signal_rate
        if rate > 0:
            memory = min(watched, 64.0 / rate)
            rate = (rate * memory + signals) / (memory + days)
        elif signals:
            rate = (signals + 0.5) / (watched + days)
        if time <= before:
            # One that comes late says no more than all that ever came.
            everything = self.signal_count + signals
            mean = (everything + 0.5) / watched if everything else 0.0
            rate = max(self.signal_rate, min(rate, mean))
        self.signal_rate = min(rate, 1e9)

    def note_success(self, time: float) -> None:
        """A crawl got the page: failures before it are over."""
        if time >= self.last_attempt_at:
            self.watch(time, 0)
            self.last_attempt_at, self.failures, self.misses = time, 0, 0
            self.status = REMOVED if self.status == REMOVED else ACTIVE

    def take_copy(self, time: float, delay: float) -> None:
        """Somebody crawled the page elsewhere. What waits is what came so many seconds after it;
        whether it has changed nobody can say."""
        if self.signals:
            self.pending = [int(self.last_of(source) > time + delay) for source in range(SOURCES)]
            self.signals = sum(self.pending)
        self.last_crawled_at, self.digest = time, 0
        self.note_success(time)

    def begin_anew(self) -> None:
        """The page is added after it was removed: what was counted and learned of it stays."""
        self.importance, self.max_age_days, self.page_class = 1.0, math.inf, ""
        self.last_crawled_at = self.last_attempt_at = self.last_changed_at = NEVER
        self.last_signal_at = self.urgent_at = NEVER
        self.digest = self.signals = self.failures = self.misses = 0
        self.pending, self.multiplier = [0] * SOURCES, 1.0
        if self.by_source is not None:
            self.by_source = [NEVER] * SOURCES


@dataclass(slots=True)
class HostState:
    """A host: its rules, and what is learned of its pages in common."""

    name: str
    shard: int
    max_crawls_per_second: float = math.nan
    """NaN: the default."""
    blocked_until: float = NEVER
    crawl_delay: float = math.nan
    asked_until: float = NEVER
    failures: int = 0
    failed_at: float = NEVER
    max_open_requests: int = 0
    """0: no bound."""
    named_group: bytes = b""
    """Empty: no outcome names one."""
    named_since: float = NEVER
    prior_shape: float = INITIAL_SHAPE
    prior_rate: float = INITIAL_SHAPE / INITIAL_CHANGE_RATE
    prior_precision: float | None = None
    """As the table has it: of all sources together. None: not written yet."""
    sources: list[str] = field(default_factory=list)
    """Those that have a slot of their own."""
    precision: NDArray[np.float64] = field(
        default_factory=lambda: np.full(SOURCES, INITIAL_PRECISION)
    )
    signals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SOURCES))
    expected_changes: NDArray[np.float64] = field(
        default_factory=lambda: np.full((1, AGE_BINS), PRIOR_CHANGES)
    )
    predicted_changes: NDArray[np.float64] = field(
        default_factory=lambda: np.full((1, AGE_BINS), PRIOR_CHANGES)
    )
    activity: list[float] = field(default_factory=lambda: [1.0] * ACTIVITY_BINS)
    """Factors of the rates of its pages, by their signals ever."""
    directories: dict[int, float] = field(default_factory=dict)
    """Those of directories that differ, in rising order."""
    quiet_found: float = 0.0
    """Changes that crawls without a signal found, of pages of which none was known."""
    quiet_predicted: float = 0.0
    quiet_belief: float = 1.0
    """By what the rates of such pages are multiplied where they are told."""

    def note_group(self, group: str | None, time: float) -> None:
        """A crawl says of what group the host is; it is of one for a day at least."""
        name, is_settled = (group or "").encode(), time < self.named_since + SECONDS_PER_DAY
        if name and name != self.named_group and not is_settled:
            self.named_group, self.named_since = name, time

    @property
    def numbers(self) -> list[int]:
        """Of the directories that differ."""
        return [*self.directories]

    @property
    def factors(self) -> list[float]:
        """Of the directories that differ."""
        return [*self.directories.values()]

    def factor_of(self, page: PageState) -> float:
        """What a page's directory and its signals say of its rate."""
        return self.activity[activity_of(page)] * self.directories.get(page.directory, 1.0)

    @property
    def back_off(self) -> float:
        """Seconds after the last failure in which the host is left alone."""
        doublings = self.failures - 5
        return min(60.0 * 2.0**doublings, SECONDS_PER_DAY) if doublings >= 0 else 0.0

    def rate(self, default: float) -> float:
        """Crawls per second that all rules allow."""
        limit = default if math.isnan(self.max_crawls_per_second) else self.max_crawls_per_second
        waits = [wait for wait in (self.crawl_delay, self.back_off) if wait > 0.0]
        return min(limit, *(1.0 / wait for wait in waits)) if waits else limit

    @property
    def left_alone_until(self) -> float:
        """Before when no rule allows a crawl."""
        back = self.failed_at + self.back_off if self.back_off else NEVER
        return max(self.blocked_until, self.asked_until, back)


@dataclass(slots=True)
class State:
    """All pages and hosts."""

    pages: dict[int, PageState]
    hosts: dict[str, HostState]


def directory_of(url: str) -> int:
    """The number of the directory of a URL: of its path as far as the last slash."""
    path = "/" + url.split("?", maxsplit=1)[0].split("/", 3)[3]
    return binascii.crc32(path[: path.rindex("/") + 1].encode()) % 65536


def activity_of(page: PageState) -> int:
    """The class of a page by its signals ever."""
    return sum(page.signal_count >= least for least in (1, 2, 4, 8, 16, 64))


def times_of(ages: list[int], latest: float) -> list[float]:
    """When each source sent its last signal, by how many steps before the page's latest."""
    end = math.ceil(latest) if latest > NEVER else NEVER
    return [NEVER if age == _NO_SIGNAL else end - age / STEPS for age in ages]


def _rounded(time: float, latest: float) -> float:
    """A time as it is kept beside those of other sources."""
    end = math.ceil(latest)
    return end - min(math.floor((end - time) * STEPS), _OLDEST_STEPS) / STEPS


def read_state(database_url: str) -> State:
    """What the tables have.

    Raises:
        Damaged: a history or a host's learning has another layout.
    """
    with psycopg.connect(database_url) as connection:
        pages = [_page(*row) for row in connection.execute(_PAGES)]
        hosts = [_host(*row) for row in connection.execute(_HOSTS)]
    return State({page.page_id: page for page in pages}, {host.name: host for host in hosts})


def _page(*columns: object) -> PageState:
    *plain, url, times, packed = columns
    page = PageState(*plain)  # type: ignore[arg-type]
    page.directory = directory_of(str(url))
    if not isinstance(packed, bytes) or len(packed) != _HISTORY.itemsize or packed[0] != _VERSION:
        raise Damaged(f"page {page.page_id}: its history cannot be read")
    history = np.frombuffer(packed, _HISTORY)[0]
    page.pending, page.totals = history["pending"].tolist(), history["totals"].tolist()
    page.last_source = int(history["last_source"])
    if isinstance(times, bytes) and times:
        page.by_source = times_of(np.frombuffer(times, "<u4").tolist(), page.last_signal_at)
    page.multiplier = float(history["multiplier"])
    page.source_evidence = history["evidence"].tolist()
    page.posterior_shape = float(history["posterior_shape"])
    page.records = [
        CrawlRecord(
            float(record["interval_days"]),
            tuple(record["signals"].tolist()),
            bool(record["changed"]),
        )
        for record in history["record"][: int(history["records"])]
    ]
    return page


def _host(
    name: str,
    shard: int,
    limit: float | None,
    blocked_until: float,
    crawl_delay: float | None,
    asked_until: float,
    failures: int,
    failed_at: float,
    most_open: int | None,
    named_group: str | None,
    named_since: float,
    shape: float | None,
    rate: float | None,
    precision: float | None,
    sources: str,
    packed: bytes | None,
    factors: bytes,
    *quiet: float,
) -> HostState:
    host = HostState(name, shard, math.nan if limit is None else limit, blocked_until)
    host.crawl_delay = math.nan if crawl_delay is None else crawl_delay
    host.asked_until, host.failures, host.failed_at = asked_until, failures, failed_at
    host.max_open_requests = most_open or 0
    host.named_group, host.named_since = (named_group or "").encode(), named_since
    host.prior_precision = precision
    host.quiet_found, host.quiet_predicted, host.quiet_belief = quiet
    host.sources = json.loads(sources)
    if factors:
        host.activity = list(struct.unpack_from(f"<{ACTIVITY_BINS}d", factors))
        host.directories = dict(struct.iter_unpack("<Hd", factors[8 * ACTIVITY_BINS :]))
    if shape is not None and rate is not None:
        host.prior_shape, host.prior_rate = shape, rate
    if packed is not None:
        if len(packed) != 8 * _HOST_DOUBLES:
            raise Damaged(f"host {name}: what was learned of it cannot be read")
        numbers = np.frombuffer(packed, "<f8").astype(np.float64)
        ends = np.cumsum([SOURCES, SOURCES, AGE_BINS])
        host.precision, host.signals, expected, predicted = np.split(numbers, ends)
        host.expected_changes, host.predicted_changes = (
            expected[None].copy(),
            predicted[None].copy(),
        )
    return host
