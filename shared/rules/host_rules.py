"""How a host may be crawled, and who says so: the rules that scheduler and estimator share.

Each rule has one writer and a field of its own, and what holds is the strictest of all:

- *operators* limit a host, block it, and bound how many requests of it are open (`host-limits`);
- *crawlers* pass on the crawl delay of its robots.txt (`host-limits`);
- the *host* asks to be left alone: Retry-After, or a 429 or 503 without one (`crawl-outcomes`);
- *learned*: a host that fails again and again is backed off from, exponentially, with one crawl
  from time to time to see whether it is there again.

An answer of any kind says that a host is well, but 429 and server errors. A crawl that failed and
names no `http_status`, or 0 as curl does, says that the host did not answer: DNS, connection,
time-out. One that robots.txt forbids was not made, and says nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from shared.contracts.identity import host_name
from shared.contracts.messages import CrawlOutcome, HostLimit
from shared.store.page_status import NEVER
from shared.units import SECONDS_PER_DAY

Rule = Literal["default", "operator", "robots", "host", "learned"]
"""Whose rule it is."""

PATIENCE: Final = 5
"""Failures of a host in a row before it is backed off from: pages fail for reasons of their own."""

FIRST_BACK_OFF_SECONDS: Final = 60.0
LONGEST_BACK_OFF_SECONDS: Final = SECONDS_PER_DAY
MOST_FAILURES: Final = 1000
"""More are not counted."""

_MOST_DOUBLINGS: Final = 40
_SERVER_ERRORS: Final = 500
_TOO_MANY_REQUESTS: Final = 429


class Effective(NamedTuple):
    """What holds for a host."""

    rate: float
    """Crawls per second."""
    rate_rule: Rule
    blocked_until: float
    """Unix seconds; NEVER: it is not."""
    block_rule: Rule
    is_paced: bool
    """Whether no two crawls may be nearer to each other than the rate says."""
    most_open: int
    """So many requests at most are asked for and not answered yet; 0: there is no such bound."""


@dataclass(slots=True)
class HostRules:
    """The rules of one host."""

    limit: float = math.nan
    """Operators', crawls per second; NaN: the default."""
    blocked_until: float = NEVER
    """Operators'."""
    crawl_delay: float = math.nan
    """Of robots.txt, seconds; NaN: it names none."""
    asked_until: float = NEVER
    """The host asked to be left alone until then."""
    failures: int = 0
    """Learned: in a row."""
    failed_at: float = NEVER
    """Learned: the last of them that counted; with no failures, the answer that ended them."""
    most_open: int = 0
    """Operators': requests that are asked for and not answered yet; 0: no bound."""

    @classmethod
    def read(cls, row: Any) -> Self:
        """Out of a record of the estimator's, or a row of columns."""
        return cls(
            float(row["max_crawls_per_second"]),
            float(row["blocked_until"]),
            float(row["crawl_delay"]),
            float(row["asked_until"]),
            int(row["failures"]),
            float(row["failed_at"]),
            int(row["max_open_requests"]),
        )

    def write(self, row: Any) -> None:
        """Into a record of the estimator's."""
        row["max_crawls_per_second"], row["blocked_until"] = self.limit, self.blocked_until
        row["crawl_delay"], row["asked_until"] = self.crawl_delay, self.asked_until
        row["failures"], row["failed_at"] = self.failures, self.failed_at
        row["max_open_requests"] = self.most_open

    @property
    def said(self) -> Self:
        """Those that somebody has set, without what was learned of the host's answers."""
        return type(self)(
            limit=self.limit,
            blocked_until=self.blocked_until,
            crawl_delay=self.crawl_delay,
            most_open=self.most_open,
        )

    @property
    def says_anything(self) -> bool:
        """Whether somebody has set any."""
        is_limited = not math.isnan(self.limit) or self.most_open > 0
        return is_limited or not math.isnan(self.crawl_delay) or self.blocked_until > NEVER

    @property
    def is_failing(self) -> bool:
        """Whether the host's last crawl failed, as far as it counted."""
        return self.failures > 0

    @property
    def back_off_seconds(self) -> float:
        """How long to wait after the last failure; 0: not at all."""
        if self.failures < PATIENCE:
            return 0.0
        doublings = min(self.failures - PATIENCE, _MOST_DOUBLINGS)
        return min(FIRST_BACK_OFF_SECONDS * 2.0**doublings, LONGEST_BACK_OFF_SECONDS)

    def take(self, message: HostLimit) -> None:
        """Take a message of `host-limits`: what it is not about stays as it is."""
        rate, until = message.max_crawls_per_second, message.blocked_until
        if message.only in (None, "limit"):
            self.limit = math.nan if rate is None else rate
        if message.only in (None, "block"):
            self.blocked_until = NEVER if until is None else until
        if message.only == "crawl-delay":
            delay = message.crawl_delay_seconds
            self.crawl_delay = math.nan if delay is None else delay
        if message.only == "open":
            self.most_open = message.max_open_requests or 0

    def ask(self, until: float) -> bool:
        """The host asks to be left alone until a time; whether that is later than it did."""
        is_later = until > self.asked_until
        self.asked_until = max(self.asked_until, until)
        return is_later

    def note(self, reached: int, time: float) -> bool:
        """A crawl at a time reached the host (1), did not (−1), or was not made (0); whether that
        says something new.

        Crawls that were on their way when the host was backed off from say nothing.
        """
        if reached == 0:
            return False
        if reached > 0:
            is_over = self.failures > 0 and time >= self.failed_at
            if is_over:
                # What failed before and is heard of later, or once more, says nothing of now.
                self.failures, self.failed_at = 0, time
            return is_over
        counts = time > self.failed_at + self.back_off_seconds
        if counts:
            self.failures, self.failed_at = min(self.failures + 1, MOST_FAILURES), time
        return counts

    def effective(self, default: float) -> Effective:
        """The strictest of all rules.

        Args:
            default: crawls per second of a host that nobody says anything about.
        """
        rates: list[tuple[float, Rule]] = [
            (default, "default") if math.isnan(self.limit) else (self.limit, "operator")
        ]
        if self.crawl_delay > 0.0:
            rates.append((1.0 / self.crawl_delay, "robots"))
        back_off = self.back_off_seconds
        if back_off > 0.0:
            rates.append((1.0 / back_off, "learned"))
        rate, rate_rule = min(rates)
        blocks: list[tuple[float, Rule]] = [
            (self.blocked_until, "operator"),
            (self.asked_until, "host"),
            (self.failed_at + back_off if back_off > 0.0 else NEVER, "learned"),
        ]
        until, block_rule = max(blocks, key=lambda block: block[0])
        return Effective(rate, rate_rule, until, block_rule, len(rates) > 1, self.most_open)


def usual_name(host: str) -> str:
    """A host's name without port 80 or 443, which mostly go without saying."""
    return host.removesuffix(":80").removesuffix(":443")


def meant_host(written: str, is_known: Callable[[str], bool]) -> str:
    """The host that is meant by what people or programs write: the one that is called so, where its
    scheme is written as well, or there is such a host; else the one without a port that goes
    without saying.

    Args:
        written: a URL's authority, maybe with its scheme.
        is_known: whether there is a host of that name; asked only where it matters.

    Raises:
        BadHost: it is no host.
    """
    name = host_name(written)
    usual = usual_name(name)
    return name if name == usual or "://" in written or is_known(name) else usual


def as_said(host: str) -> str:
    """A host as a message of `host-limits` has it: with its scheme, where the port would else be
    taken for one that goes without saying (`with_proper_host`)."""
    if usual_name(host) == host:
        return host
    return f"{'https' if host.endswith(':80') else 'http'}://{host}"


def with_proper_host(limit: HostLimit) -> HostLimit:
    """A message of `host-limits` whose host is written as those of pages are: senders, who pass on
    what a robots.txt asks for, may have it in capitals or with a port that goes without saying. Who
    means the port says the scheme as well: `https://example.com:80`. What takes back limit and
    block, and says nothing else, is as exact: it may be a tombstone, whose key is a host's name.

    Raises:
        BadHost: it is no host.
    """
    name = meant_host(limit.host, lambda _: limit == HostLimit(limit.host))
    return limit if name == limit.host else replace(limit, host=name)


def reaches_of(outcomes: Sequence[CrawlOutcome]) -> NDArray[np.int8]:
    """`reach_of` each."""
    reached = np.ones(len(outcomes), np.int8)
    for place, outcome in enumerate(outcomes):
        status = outcome.http_status
        if not status or status == _TOO_MANY_REQUESTS or status >= _SERVER_ERRORS:
            reached[place] = reach_of(outcome)
    return reached


def are_late(
    pages: NDArray[np.integer[Any]], times: NDArray[np.float64], known: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which crawls tell nothing of now, as their pages were crawled since, or just then: a failure
    among them does not count against its host.

    Args:
        pages: numbers of their pages, in order of time; below 0: nothing is known of it.
        times: of the crawls.
        known: when each page was last crawled before these, successfully or not.
    """
    found = np.zeros(times.size, np.bool_)
    last: dict[int, float] = {}
    for place, (page, time) in enumerate(zip(pages.tolist(), times.tolist(), strict=True)):
        if page >= 0:
            before = last.get(page, float(known[place]))
            found[place] = time <= before
            last[page] = max(before, time)
    return found


def reach_of(outcome: CrawlOutcome) -> int:
    """1: the crawl reached its host, which is well; −1: it did not, or the host is not well; 0: it
    was not made."""
    status = outcome.http_status
    if not status:
        if outcome.result == "disallowed":
            return 0
        return -1 if outcome.result == "failed" else 1
    return -1 if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERRORS else 1
