"""The crawler fleet of a verification: answers every request that it sees, but for a few."""

import asyncio
import time
from collections import Counter, deque
from typing import Any, Final

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from services.verify.crowd import Crowd
from services.verify.ledger import AWAY
from services.verify.plan import (
    AWAY_SHARE,
    BUSY_SECONDS,
    BUSY_SHARE,
    CRAWL_SECONDS,
    DIGEST_EVERY,
    FAILED_SHARE,
    GONE_SHARE,
    UNANSWERED_SHARE,
)
from services.verify.sending import Account, Sender
from services.world.web import Web
from shared.contracts.codec import BadMessage, decode
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS
from shared.runtime.kafka import make_consumer
from shared.runtime.settings import Settings
from shared.units import SECONDS_PER_DAY

_TURN_MS: Final = 20
_REMEMBERED_SECONDS: Final = 30.0


class Crawlers:
    """Reads `crawl-requests` from the very beginning, every partition, without a group."""

    def __init__(
        self,
        settings: Settings,
        crowd: Crowd,
        sender: Sender,
        seed: int,
        *,
        in_old_words: bool = False,
    ) -> None:
        """Set up, without connecting.

        Args:
            settings: of the system.
            crowd: the pages.
            sender: of what they find.
            seed: of what becomes of crawls.
            in_old_words: whether they say nothing that workers of 0.2 refuse.
        """
        self.seen = Account()
        """The requests that came, with their offsets."""
        self.requests = 0
        self.left: set[int] = set()
        """Pages of which a request was left unanswered, and that were not asked for again since;
        without those that were found gone, which are asked for by their own rhythm."""
        self.answers_everything = False
        """No request is left unanswered any more, and no host asks for a pause: what was lost can
        be asked for again."""
        self.arrivals: deque[float] = deque()
        """Wall times of the last requests, as the broker stamped them."""
        self.reasons: deque[str] = deque(maxlen=300)
        """Of the last requests."""
        self._settings = settings
        self._sender = sender
        self._origin = time.time()
        self._web = Web(crowd.pages.importance, crowd.pages.held, crowd.stream)
        self._rows = {page: row for row, page in enumerate(crowd.pages.page_ids.tolist())}
        self._in_old_words = in_old_words
        self._addresses = crowd.addresses
        self._gone: set[int] = set()
        self._versions: Counter[int] = Counter()
        """Page → how often it was found changed."""
        self._under_way: deque[tuple[float, CrawlRequest]] = deque()
        self._rng = np.random.default_rng([seed, 12])
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self, origin: float) -> None:
        """Connect; the web's days begin at `origin`, Unix seconds."""
        self._origin = origin
        consumer = self._consumer = make_consumer(self._settings)
        await consumer.start()
        consumer.assign(self._partitions(self._settings.partitions))
        await consumer.seek_to_beginning()

    def _partitions(self, count: int) -> list[TopicPartition]:
        name = self._settings.topic(CRAWL_REQUESTS.name)
        return [TopicPartition(name, number) for number in range(count)]

    async def read_more(self, count: int) -> None:
        """Read so many partitions, which are there."""
        consumer = self._consumer
        if consumer is None:
            raise RuntimeError("the crawlers are not started")
        wanted, before = self._partitions(count), consumer.assignment()
        if before.issuperset(wanted):
            return
        stood = {tp: await consumer.position(tp) for tp in before}
        consumer.assign(wanted)
        for tp in wanted:
            consumer.seek(tp, stood.get(tp, 0))

    async def stop(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await self._consumer.stop()

    @property
    def busy(self) -> bool:
        """Whether crawls are under way."""
        return bool(self._under_way)

    def rate(self, seconds: float) -> float:
        """Requests per second that came in the last seconds."""
        since = time.time() - seconds
        return sum(at > since for at in self.arrivals) / seconds

    @property
    def catches_up(self) -> bool:
        """Whether most of the last requests were for pages that are too old, or new."""
        return 2 * sum(reason != "value" for reason in self.reasons) > len(self.reasons)

    async def run(self) -> None:
        """Crawl until cancelled."""
        consumer = self._consumer
        if consumer is None:
            raise RuntimeError("the crawlers are not started")
        while True:
            fetched = await consumer.getmany(timeout_ms=_TURN_MS, max_records=5_000)
            for tp, records in fetched.items():
                for record in records:
                    self.seen.add(CRAWL_REQUESTS.name, tp.partition, record.offset, record.value)
                    self._take(record.value, record.timestamp / 1000.0)
            now = time.monotonic()
            while self._under_way and self._under_way[0][0] <= now:
                self._answer(self._under_way.popleft()[1])
            await asyncio.sleep(0)

    def _take(self, value: bytes, written_at: float) -> None:
        try:
            request = decode(CrawlRequest, value)
        except BadMessage:
            return  # somebody's bad message: no crawler stops for it
        self.requests += 1
        self.arrivals.append(written_at)
        self.reasons.append(request.reason)
        while self.arrivals and self.arrivals[0] < written_at - _REMEMBERED_SECONDS:
            self.arrivals.popleft()
        if self._rng.random() < UNANSWERED_SHARE and not self.answers_everything:
            self.left |= {request.page_id} - self._gone
            return
        self.left.discard(request.page_id)
        self._under_way.append((time.monotonic() + CRAWL_SECONDS, request))

    def _answer(self, request: CrawlRequest) -> None:
        now = time.time()
        outcome = CrawlOutcome(
            url=request.url,
            host=request.host,
            request_id=request.request_id,
            crawled_at=now,
            group=None if self._in_old_words else self._addresses.get(request.host),
            **self._found(request, now),
        )
        self._sender.queue(CRAWL_OUTCOMES, request.host, outcome)

    def _found(self, request: CrawlRequest, now: float) -> dict[str, Any]:
        """What a crawl found: fields of its outcome."""
        luck, page_id = self._rng.random(), request.page_id
        if luck < BUSY_SHARE and not self.answers_everything:
            pause = float(self._rng.uniform(*BUSY_SECONDS))
            return {"result": "failed", "http_status": 429, "retry_after_seconds": pause}
        if luck < BUSY_SHARE + FAILED_SHARE:
            return {"result": "failed", "http_status": 500}
        away_share = 0.0 if self._in_old_words else AWAY_SHARE
        if luck > 1.0 - GONE_SHARE - away_share and page_id in self._rows:
            self._gone.add(page_id)
            is_gone = luck > 1.0 - GONE_SHARE
            return {"result": "gone", "http_status": 404} if is_gone else _away(request)
        return self._content(page_id, now)

    def _content(self, page_id: int, now: float) -> dict[str, Any]:
        changed = self._changed(page_id, now)
        self._versions[page_id] += changed
        if page_id % DIGEST_EVERY == 0:
            return {"digest": f"version {self._versions[page_id]}", "http_status": 200}
        if changed or self._in_old_words or page_id % 2:
            return {"result": "changed" if changed else "unchanged", "http_status": 200}
        # What a crawler makes of the empty body of a 304 says nothing.
        return {"result": "not_modified", "digest": f"empty at {now}", "http_status": 304}

    def _changed(self, page_id: int, now: float) -> bool:
        row = self._rows.get(page_id)
        if row is None:
            return False  # added while the system runs: such pages never change
        day = (now - self._origin) / SECONDS_PER_DAY
        return bool(self._web.crawl(np.array([row]), max(day, self._web.day))[0])


def _away(request: CrawlRequest) -> dict[str, Any]:
    """Fields of an outcome that takes a page out of the order of all others."""
    result, target = AWAY[request.page_id % len(AWAY)], f"{request.url}/elsewhere"
    if result == "disallowed":
        return {"result": result}
    return {
        "result": result,
        "redirected_to" if result == "redirected" else "canonical_url": target,
    }
