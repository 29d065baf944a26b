"""The simulated crawler fleet: takes requests, looks at the web, answers with outcomes."""

import math
import time
from collections import deque
from dataclasses import dataclass

import msgspec
import numpy as np
import structlog
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.world.batches import Record, send_batches
from services.world.pages import WorldPages
from services.world.plan import FleetPlan
from services.world.web import Web
from shared.contracts.codec import decode_many, encode
from shared.contracts.messages import CrawlOutcome, Result
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS
from shared.runtime.clock import SECONDS_PER_DAY, Clock
from shared.runtime.kafka import make_consumer
from shared.runtime.publisher import Publisher
from shared.store.page_lookup import PageLookup

log = structlog.get_logger(__name__)

GROUP = "freshet-world-fleet"
TURN_SECONDS = 0.1
"""The fleet looks up so often where nothing is asked for."""

MAX_RECORDS = 20_000

STATUS_OF = {"changed": 200, "unchanged": 304, "gone": 404}
SERVER_ERROR = 503
TOO_MANY_REQUESTS = 429

UNKNOWN_PAGE = -1


class _Request(msgspec.Struct, frozen=True, gc=False):
    """What a crawler needs of a `CrawlRequest`."""

    request_id: str
    page_id: int
    url: str
    host: str


@dataclass(frozen=True, slots=True)
class _Crawls:
    """Crawls that end together."""

    ready_at: float
    requests: list[_Request]
    places: list[tuple[int, bytes]]
    """Partition and key of each request, which are its answer's: both go by the host."""
    pages: NDArray[np.int64]


class Fleet:
    """One member of the fleet's consumer group."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        web: Web,
        pages: WorldPages,
        plan: FleetPlan,
        *,
        origin: float,
        seed: int,
    ) -> None:
        self.crawled = 0
        self.refused = 0
        """Requests that could not be decoded."""
        self._publisher = publisher
        self._settings = publisher.settings
        self._clock = clock
        self._web = web
        self._plan = plan
        self._origin = origin
        self._rng = np.random.default_rng([seed, 3])
        self._rows = PageLookup(len(pages))
        self._rows.add_many(pages.page_ids, np.arange(len(pages), dtype=np.int32))
        self._under_way: deque[_Crawls] = deque()
        self._consumer = make_consumer(self._settings, GROUP)

    async def start(self) -> None:
        """Join the group."""
        await self._consumer.start()
        self._consumer.subscribe([self._settings.topic(CRAWL_REQUESTS.name)])

    async def stop(self) -> None:
        """Leave the group; crawls under way are not answered."""
        await self._consumer.stop()

    @property
    def ready(self) -> bool:
        """Whether the group has given out its partitions."""
        return bool(self._consumer.assignment())

    @property
    def busy(self) -> bool:
        """Whether crawls are under way."""
        return bool(self._under_way)

    async def turn(self) -> None:
        """Take what was asked for, and answer the crawls that have ended."""
        wait = TURN_SECONDS
        if self._under_way:
            wait = min(max(self._under_way[0].ready_at - time.monotonic(), 0.0), wait)
        fetched = await self._consumer.getmany(
            timeout_ms=math.ceil(wait * 1000), max_records=MAX_RECORDS
        )
        records = [record for part in fetched.values() for record in part]
        if records:
            self._take(records)
        now = time.monotonic()
        while self._under_way and self._under_way[0].ready_at <= now:
            await self._answer(self._under_way.popleft())

    def _take(self, records: list[ConsumerRecord]) -> None:
        requests, bad = decode_many(_Request, [record.value for record in records])
        for index, error in bad.items():
            self.refused += 1
            log.warning("crawl request refused", offset=records[index].offset, reason=str(error))
        good = [r for index, r in enumerate(records) if index not in bad] if bad else records
        page_ids = np.array([request.page_id for request in requests], np.int64)
        self._under_way.append(
            _Crawls(
                time.monotonic() + self._plan.latency_seconds,
                requests,
                [(record.partition, record.key) for record in good],
                self._rows.find_many(page_ids).astype(np.int64),
            )
        )

    async def _answer(self, crawls: _Crawls) -> None:
        now = self._clock.now()
        statuses, changed = self._crawl(crawls.pages, (now - self._origin) / SECONDS_PER_DAY)
        digests = self._digests(crawls.pages, statuses)
        answers: dict[int, list[Record]] = {}
        columns = (crawls.requests, crawls.places, statuses.tolist(), changed.tolist(), digests)
        for request, (partition, key), status, is_changed, digest in zip(*columns, strict=True):
            outcome = CrawlOutcome(
                request.url,
                now,
                request.host,
                request.request_id,
                _result(status, is_changed, self._plan.digests),
                digest,
                status,
                self._plan.retry_after_seconds if status == TOO_MANY_REQUESTS else None,
            )
            answers.setdefault(partition, []).append((key, encode(outcome)))
        await send_batches(self._publisher, CRAWL_OUTCOMES, answers)
        self.crawled += len(crawls.requests)

    def _crawl(
        self, pages: NDArray[np.int64], day: float
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Statuses of the answers, and which pages were found changed."""
        luck = self._rng.random(pages.size)
        statuses = np.full(pages.size, STATUS_OF["unchanged"], np.int64)
        throttled = luck < self._plan.throttled_share
        failed = ~throttled & (luck < self._plan.throttled_share + self._plan.failed_share)
        statuses[throttled] = TOO_MANY_REQUESTS
        statuses[failed] = SERVER_ERROR
        statuses[pages == UNKNOWN_PAGE] = STATUS_OF["gone"]
        seen = np.flatnonzero(statuses < 400)
        changed = np.zeros(pages.size, np.bool_)
        changed[seen] = self._web.crawl(pages[seen], day)
        statuses[changed] = STATUS_OF["changed"]
        return statuses, changed

    def _digests(self, pages: NDArray[np.int64], statuses: NDArray[np.int64]) -> list[str | None]:
        """What was seen, where the fleet tells it by digests."""
        if not self._plan.digests:
            return [None] * pages.size
        versions = self._web.versions(np.maximum(pages, 0))
        columns = zip(pages.tolist(), versions.tolist(), statuses.tolist(), strict=True)
        return [f"{p:x}-{v:x}" if status < 400 else None for p, v, status in columns]


def _result(status: int, changed: bool, by_digest: bool) -> Result | None:
    if status == STATUS_OF["gone"]:
        return "gone"
    if status >= 400:
        return "failed"
    if by_digest:
        return None
    return "changed" if changed else "unchanged"
