"""The world around the system: pages that change, crawlers, pingers, operators."""

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import msgspec
from aiokafka import ConsumerRecord

from services.verify.ledger import AWAY
from services.verify.simulation.classes import CHANGED_SECONDS, with_class, with_classes
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.kafka.broker import Broker, Given, Partition
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.orders import Orders
from services.verify.simulation.plan import Scale
from services.verify.simulation.process import OUTSIDE
from services.verify.simulation.sending import Sending
from services.verify.simulation.sharing import EACH, LIMITS, SHARED_HOSTS, address_of
from services.verify.simulation.truth import Page, Truth
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import (
    Bandwidth,
    CrawlOutcome,
    CrawlRequest,
    GroupLimit,
    HostLimit,
    PageUpdate,
    Signal,
)
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    GLOBAL_KEY,
    GROUP_LIMITS,
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

WAVERING: Final = 4
"""One page in so many is away instead, where crawls of others fail."""

CHANGE_SECONDS: Final = 6.0
"""A page changes about so often."""

SIGNALLED_SHARE: Final = 0.7

KNOWN_SECONDS: Final = 3.0
"""Nobody signals a page before it was added for so long: signals of unknown pages do not count."""

LATEST_SECONDS: Final = 14.0
"""Pages are added until then."""

MOST_IMPORTED: Final = 4
"""Pages."""

_NO_REQUEST: Final = "asked-for-by-nobody"

_BAD_TOPICS: Final = (
    SIGNALS,
    CRAWL_OUTCOMES,
    PAGE_UPDATES,
    PAGE_SIGNALS,
    HOST_LIMITS,
    PAGE_PARAMETERS,
    HOST_PARAMETERS,
)


class World:
    """Everybody but the system."""

    def __init__(
        self, loop: VirtualLoop, broker: Broker, scale: Scale, rng: Random, seed: int
    ) -> None:
        self.truth = Truth()
        self._loop, self._broker, self._scale = loop, broker, scale
        self._rng = rng
        self._sending = Sending(loop, broker, self.truth, seed)
        self._send, self._append = self._sending.send, self._sending.append
        self.orders = Orders(loop, self.truth, self._send, self.set_budget, scale.crawls_per_second)
        self._by_url: dict[str, Page] = {}
        self._read: dict[int, int] = {}
        self._reading = 0
        """So many partitions of the requests are read."""
        self._context = OUTSIDE.context()
        self._is_at_rest = False

    def start(self, is_away: Callable[[], bool]) -> None:
        """Set everything up, and let it run.

        Args:
            is_away: whether the broker takes nothing now; what is sent then waits.
        """
        self._sending.is_away = is_away
        scale, rng = self._scale, self._rng
        self.set_budget(scale.crawls_per_second)
        hosts = [f"host{number}.example" for number in range(scale.hosts - len(SHARED_HOSTS))]
        hosts += SHARED_HOSTS
        for number in range(scale.pages):
            host = hosts[number % len(hosts)]
            url = f"http://{host}/page{number}"
            late = rng.random() < 0.2
            at = round(rng.uniform(2.0, LATEST_SECONDS), 3) if late else 0.05
            page = self._know(host, url, at)
            self._at(at, lambda page=page: self._add(page))  # type: ignore[misc]
            if rng.random() < 0.08:
                page.removed_at = round(at + rng.uniform(3.0, 15.0), 3)
                self._at(page.removed_at, lambda page=page: self._remove(page))  # type: ignore[misc]
        for host in hosts:
            self.truth.host_limits[host] = 1.0
        self.truth.host_limits[slow := hosts[0]] = 0.5
        self._at(0.01, lambda: self._send(HOST_LIMITS, slow, HostLimit(slow, 0.5)))
        self.truth.open_bounds[narrow := hosts[1]] = 1
        bound = HostLimit(narrow, max_open_requests=1, only="open")
        self._at(0.01, lambda: self._send(HOST_LIMITS, narrow, bound))
        self.truth.limit_groups(scale.group_crawls_per_second)
        for group, rate in LIMITS.items():
            self._at(0.01, lambda group=group, rate=rate: self._limit_group(group, rate))  # type: ignore[misc]
        self.read_all()

    def read_all(self) -> None:
        """Let crawlers read every partition of the requests that there is now."""
        for log in self._broker.topics[CRAWL_REQUESTS.name][self._reading :]:
            log.followers.append(lambda log=log: self._look(log))  # type: ignore[misc]
            if log.records:
                self._look(log)
            self._reading += 1

    def _limit_group(self, group: str, rate: float) -> None:
        self._append(GROUP_LIMITS, 0, group.encode(), encode(GroupLimit(group, rate)))

    def _know(self, host: str, url: str, at: float) -> Page:
        """A page that begins to change some time after it is added."""
        partition = shard_of(host, self._scale.partitions)
        page = Page(url, host, partition, identify(url).page_id, at)
        self.truth.pages.append(page)
        self._by_url[url] = page
        first = at + KNOWN_SECONDS + self._rng.expovariate(1 / CHANGE_SECONDS)
        self._at(first, lambda: self._change(page))
        return page

    def _at(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(max(seconds - self._loop.now, 0.0), call, context=OUTSIDE.context())

    @property
    def _wall(self) -> float:
        return BEGINNING + self._loop.now

    @property
    def _crawlers_time(self) -> float:
        return self._wall - self._scale.crawlers_behind_seconds

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
        update = PageUpdate("upsert", page.url, importance, updated_at=self._wall)
        first, *later = with_classes(update, self._scale)
        self._send(PAGE_UPDATES, page.host, first)
        for said in later:
            send = partial(self._send, PAGE_UPDATES, page.host, said)
            self._at(self._loop.now + CHANGED_SECONDS, send)

    def pages_to_import(self) -> list[PageUpdate]:
        """A page or two that nobody has heard of, and another importance for one that is known."""
        now, rng = self._loop.now, self._rng
        known = [p for p in self.truth.pages if p.removed_at == math.inf and p.added_at < now]
        chosen = rng.sample(known, min(1, len(known)))
        # Few, and none of the slow host: all pages must be crawled again in time.
        room = self._scale.pages + MOST_IMPORTED - len(self.truth.pages)
        for _ in range(min(2, room)):
            host = f"host{rng.randrange(1, self._scale.hosts - len(SHARED_HOSTS))}.example"
            chosen.append(self._know(host, f"http://{host}/import{len(self._by_url)}", now))
        weights = [round(0.5 + 2 * rng.random(), 2) for _ in chosen]
        pages = zip(chosen, weights, strict=True)
        new = [PageUpdate("upsert", p.url, weight, updated_at=self._wall) for p, weight in pages]
        found = [with_class(update, self._scale) for update in new]
        self.truth.imported += found
        return found

    def _remove(self, page: Page) -> None:
        update = PageUpdate(
            "remove", page.url, updated_at=self._wall, for_good=page.page_id % 2 == 0
        )
        self._send(PAGE_UPDATES, page.host, update)

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
            is_away = page.page_id % WAVERING == 0
            result = AWAY[int(self._loop.now) % len(AWAY)] if is_away else "failed"
            outcome = self._outcome(request, page, result)
        elif draw < FAILED_SHARE + BUSY_SHARE:
            outcome = CrawlOutcome(
                page.url,
                self._crawlers_time,
                page.host,
                request.request_id,
                "failed",
                http_status=429,
                retry_after_seconds=BUSY_SECONDS,
            )
        else:
            is_new = page.changed_at > page.crawled_at
            page.crawled_at = self._loop.now
            same = "unchanged" if page.page_id % 2 else "not_modified"
            outcome = self._outcome(request, page, "changed" if is_new else same)
        self._send(CRAWL_OUTCOMES, page.host, outcome)

    def _outcome(self, request: CrawlRequest, page: Page, result: str) -> CrawlOutcome:
        are_limited = EACH in self.truth.group_limits
        return CrawlOutcome(
            page.url,
            self._crawlers_time,
            page.host,
            request.request_id,
            result,  # type: ignore[arg-type]
            group=address_of(page.host, self._loop.now, are_limited=are_limited),
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
                if not log.takes_nothing:
                    log.mark()

    def begin_transaction(self, topic: Topic, number: int, *, is_committed: bool) -> bool:
        """What is sent to a partition from now on is in a transaction.

        Args:
            topic: of the partition.
            number: of the partition.
            is_committed: how it is to end. One that is given up begins with a crawl that was none.

        Returns:
            whether it has begun: there may be one already, or nobody takes it.
        """
        log = self._broker.partition(topic.name, number)
        if log.open_since is not None or log.takes_nothing:
            return False
        log.begin_transaction()
        known = [p for p in self.truth.pages if p.partition == number and p.crawled_at > 0]
        if known and topic is CRAWL_OUTCOMES and not is_committed:
            page = self._rng.choice(known)
            never = CrawlOutcome(page.url, self._wall, page.host, _NO_REQUEST, "changed")
            given = Given(page.host.encode(), encode(never), int(self._wall * 1000))
            log.append([given], self._loop.now)
        return True

    def end_transaction(self, topic: Topic, number: int, *, is_committed: bool) -> None:
        """End it. What was given up is sent again, but for what never was."""
        log = self._broker.partition(topic.name, number)
        since = log.end if log.open_since is None else log.open_since
        records = [record for record in log.records if record.offset >= since]
        log.end_transaction(is_committed=is_committed)
        if is_committed:
            return
        for record in records:
            place = (topic.name, number, record.offset)
            is_bad = place in self.truth.bad
            self.truth.bad.discard(place)
            if _NO_REQUEST.encode() not in record.value:
                self._append(topic, number, record.key, record.value, is_bad=is_bad)

    def note_lost(self, log: Partition, first: int, applied: int) -> None:
        """Records are about to be lost: of some nobody knows whether they were applied.

        Args:
            log: where they stand.
            first: offset of the first one.
            applied: before this offset all was applied.
        """
        for record in log.records:
            place = (log.topic, log.number, record.offset)
            if record.offset >= first and place in self.truth.bad:
                self.truth.bad.discard(place)
                self.truth.once_bad.add(place)
            elif record.offset >= max(first, applied):
                self.truth.unsure.add(msgspec.json.decode(record.value)["url"])
