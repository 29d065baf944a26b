"""The world around the system: pages that change, crawlers, pingers, operators; and the truth."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from aiokafka import ConsumerRecord
from msgspec import Struct

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.kafka.broker import Broker, Given, Header, Partition
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import Scale
from services.verify.simulation.process import OUTSIDE
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import (
    Bandwidth,
    CrawlOutcome,
    CrawlRequest,
    HostLimit,
    PageUpdate,
    Signal,
)
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    GLOBAL_KEY,
    HOST_LIMITS,
    HOST_PARAMETERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
    Topic,
)

UNANSWERED_SHARE: Final = 0.03
LATE_SHARE: Final = 0.02
FAILED_SHARE: Final = 0.04
BUSY_SHARE: Final = 0.02
BUSY_SECONDS: Final = 2.5

CHANGE_SECONDS: Final = 6.0
"""A page changes about so often."""

SIGNALLED_SHARE: Final = 0.7

KNOWN_SECONDS: Final = 3.0
"""Nobody signals a page before it was added for so long: signals of unknown pages do not count."""

LATEST_SECONDS: Final = 14.0
"""Pages are added until then."""

_RETRY_SECONDS: Final = 0.1

_BAD_TOPICS: Final = (
    SIGNALS,
    CRAWL_OUTCOMES,
    PAGE_UPDATES,
    PAGE_SIGNALS,
    HOST_LIMITS,
    PAGE_PARAMETERS,
    HOST_PARAMETERS,
)


@dataclass(slots=True)
class Page:
    """A page as it is in truth."""

    url: str
    host: str
    partition: int
    page_id: int
    added_at: float
    """Virtual seconds, as are all times here."""
    removed_at: float = math.inf
    changed_at: float = -math.inf
    crawled_at: float = -math.inf


@dataclass(slots=True)
class Truth:
    """What an operator, a crawler or a pinger would swear to."""

    pages: list[Page] = field(default_factory=list)
    host_limits: dict[str, float] = field(default_factory=dict)
    budgets: list[tuple[float, float]] = field(default_factory=list)
    """When the budget was set, and to how many crawls a second."""
    bad: set[tuple[str, int, int]] = field(default_factory=set)
    """Topic, partition and offset of messages that nobody can take."""


class World:
    """Everybody but the system."""

    def __init__(self, loop: VirtualLoop, broker: Broker, scale: Scale, rng: Random) -> None:
        self.truth = Truth()
        self._loop, self._broker, self._scale = loop, broker, scale
        self._rng = rng
        self._is_away: Callable[[], bool] = lambda: False
        self._waiting: deque[Callable[[], None]] = deque()
        self._by_url: dict[str, Page] = {}
        self._read: dict[int, int] = {}
        self._context = OUTSIDE.context()
        self._is_at_rest = False

    def start(self, is_away: Callable[[], bool]) -> None:
        """Set everything up, and let it run.

        Args:
            is_away: whether the broker takes nothing now; what is sent then waits.
        """
        self._is_away = is_away
        scale, rng = self._scale, self._rng
        self.set_budget(scale.crawls_per_second)
        hosts = [f"host{number}.example" for number in range(scale.hosts)]
        for number in range(scale.pages):
            host = hosts[number % len(hosts)]
            url = f"http://{host}/page{number}"
            late = rng.random() < 0.2
            at = round(rng.uniform(2.0, LATEST_SECONDS), 3) if late else 0.05
            page = Page(url, host, shard_of(host, scale.partitions), identify(url).page_id, at)
            self.truth.pages.append(page)
            self._by_url[page.url] = page
            self._at(at, lambda page=page: self._add(page))  # type: ignore[misc]
            if rng.random() < 0.08:
                page.removed_at = round(at + rng.uniform(3.0, 15.0), 3)
                self._at(page.removed_at, lambda page=page: self._remove(page))  # type: ignore[misc]
            first = at + KNOWN_SECONDS + rng.expovariate(1 / CHANGE_SECONDS)
            self._at(first, lambda page=page: self._change(page))  # type: ignore[misc]
        for host in hosts:
            self.truth.host_limits[host] = 1.0
        slow = hosts[0]
        self.truth.host_limits[slow] = 0.5
        self._at(0.01, lambda: self._send(HOST_LIMITS, slow, HostLimit(slow, 0.5)))
        for log in self._broker.topics[CRAWL_REQUESTS.name]:
            log.followers.append(lambda log=log: self._look(log))  # type: ignore[misc]

    def _at(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(max(seconds - self._loop.now, 0.0), call, context=OUTSIDE.context())

    @property
    def _wall(self) -> float:
        return BEGINNING + self._loop.now

    # Operators.

    def set_budget(self, rate: float) -> None:
        """Set the bandwidth."""
        self.truth.budgets.append((self._loop.now, rate))
        value = encode(Bandwidth(rate, self._wall))
        self._append(BANDWIDTH, 0, GLOBAL_KEY, value)

    def rest(self) -> None:
        """Take the budget away, and let nothing change any more."""
        self._is_at_rest = True
        self.set_budget(0.0)

    def _add(self, page: Page) -> None:
        importance = round(0.5 + 2 * self._rng.random(), 2)
        self._send(
            PAGE_UPDATES,
            page.host,
            PageUpdate("upsert", page.url, importance=importance, updated_at=self._wall),
        )

    def _remove(self, page: Page) -> None:
        self._send(PAGE_UPDATES, page.host, PageUpdate("remove", page.url, updated_at=self._wall))

    # Web and pingers.

    def _change(self, page: Page) -> None:
        if self._is_at_rest:
            return
        page.changed_at = self._loop.now
        rng = self._rng
        if rng.random() < SIGNALLED_SHARE:
            source = rng.choice(("feed", "cms"))
            delay = rng.uniform(0.02, 0.5)
            self._at(
                self._loop.now + delay,
                lambda: self._send(SIGNALS, page.host, Signal(page.url, source)),
            )
        self._at(self._loop.now + rng.expovariate(1 / CHANGE_SECONDS), lambda: self._change(page))

    # Crawlers.

    def _look(self, log: Partition) -> None:
        self._loop.call_later(
            0.001 + 0.01 * self._rng.random(), self._crawl_all, log, context=self._context
        )

    def _crawl_all(self, log: Partition) -> None:
        begin = self._read.get(log.number, 0)
        for record in log.between(begin, log.end, 1_000):
            self._read[log.number] = record.offset + 1
            request = decode(CrawlRequest, record.value)
            draw = self._draw()
            if draw < UNANSWERED_SHARE:
                continue
            slow = draw < UNANSWERED_SHARE + LATE_SHARE
            seconds = self._rng.uniform(4.0, 8.0) if slow else self._rng.uniform(0.03, 0.4)
            self._at(
                self._loop.now + seconds,
                lambda request=request: self._crawl(request),  # type: ignore[misc]
            )

    def _draw(self) -> float:
        """What becomes of a crawl; towards the end all is well, so that the last bounds hold."""
        is_quiet = self._loop.now > self._scale.seconds - self._scale.quiet_seconds
        return 1.0 if is_quiet else self._rng.random()

    def _crawl(self, request: CrawlRequest) -> None:
        page, draw = self._by_url[request.url], self._draw()
        if draw < FAILED_SHARE:
            outcome = self._outcome(request, page, "failed")
        elif draw < FAILED_SHARE + BUSY_SHARE:
            outcome = CrawlOutcome(
                page.url,
                self._wall,
                page.host,
                request.request_id,
                "failed",
                http_status=429,
                retry_after_seconds=BUSY_SECONDS,
            )
        else:
            is_new = page.changed_at > page.crawled_at
            page.crawled_at = self._loop.now
            outcome = self._outcome(request, page, "changed" if is_new else "unchanged")
        self._send(CRAWL_OUTCOMES, page.host, outcome)

    def _outcome(self, request: CrawlRequest, page: Page, result: str) -> CrawlOutcome:
        return CrawlOutcome(
            page.url,
            self._wall,
            page.host,
            request.request_id,
            result,  # type: ignore[arg-type]
        )

    # What goes wrong in the world.

    def repeat(self, detail: float) -> None:
        """Somebody sends again what was sent before."""
        topic = (CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES)[int(detail * 3)]
        for log in self._broker.topics[topic.name]:
            again: list[ConsumerRecord] = [r for r in log.records if r.value][-6:]
            for record in again:
                if (record.topic, record.partition, record.offset) not in self.truth.bad:
                    self._append(topic, log.number, record.key, record.value)

    def poison(self, detail: float) -> None:
        """Somebody sends what nobody can take."""
        topic = _BAD_TOPICS[int(detail * len(_BAD_TOPICS))]
        log = self._broker.topics[topic.name][int(detail * 1e6) % self._scale.partitions]
        self._append(topic, log.number, b"bad", b'{"bad": true', is_bad=True)

    def mark(self) -> None:
        """Crawlers and operators write in transactions: each leaves a marker."""
        for topic in (CRAWL_OUTCOMES, PAGE_UPDATES):
            for log in self._broker.topics[topic.name]:
                log.mark()

    # Sending.

    def _send(self, topic: Topic, host: str, message: Struct) -> None:
        partition = shard_of(host, self._scale.partitions)
        self._append(topic, partition, host.encode(), encode(message))

    def _append(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...] = (),
        *,
        is_bad: bool = False,
    ) -> None:
        given = Given(key, value, int(self._wall * 1000), headers)

        def append() -> None:
            stored = self._broker.append(topic.name, partition, [given], 0)
            if is_bad:
                self.truth.bad.add((topic.name, partition, stored.offset))

        if self._waiting or self._is_away():
            self._waiting.append(append)
            self._loop.call_later(_RETRY_SECONDS, self._send_waiting, context=self._context)
        else:
            append()

    def _send_waiting(self) -> None:
        if self._is_away():
            self._loop.call_later(_RETRY_SECONDS, self._send_waiting, context=self._context)
            return
        while self._waiting:
            self._waiting.popleft()()
