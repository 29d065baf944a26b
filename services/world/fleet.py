"""The simulated crawler fleet: takes requests, looks at the web, answers with outcomes."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.world.hosts import SimulatedHosts
from services.world.pages import WorldPages
from services.world.plan import FleetPlan
from services.world.web import Web
from shared.contracts.codec import encode
from shared.contracts.fields import Result
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.clock import Clock
from shared.runtime.publisher import ByPlace, Publisher
from shared.store.page_lookup import PageLookup
from shared.units import SECONDS_PER_DAY

TURN_SECONDS = 0.02
"""The fleet looks up so often where nothing is asked for."""

Place = tuple[int, bytes]
"""Partition and key of a request, which are its answer's: both go by the host."""

STATUS_OF = {"changed": 200, "unchanged": 304, "gone": 404}
SERVER_ERROR = 503
TOO_MANY_REQUESTS = 429
NO_ANSWER = 0
"""Status of a crawl whose host did not answer."""

UNKNOWN_PAGE = -1


_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True, order=True)
class _Crawls:
    """Crawls that end together."""

    ready_at: float
    number: int = field(default_factory=_NUMBERS.__next__)
    """Of those that end at the same moment, those that began first come first."""
    requests: Sequence[CrawlRequest] = field(default=(), compare=False)
    places: Sequence[Place] = field(default=(), compare=False)
    pages: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), compare=False)


class Fleet:
    """All crawlers of the world in one."""

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
        self._publisher = publisher
        self._clock = clock
        self._web = web
        self._plan = plan
        self._origin = origin
        self._rng = np.random.default_rng([seed, 3])
        self._rows = PageLookup(len(pages))
        self._rows.add_many(pages.page_ids, np.arange(len(pages), dtype=np.int32))
        self._under_way: list[_Crawls] = []
        """A heap by the time at which they end."""
        self._hosts = SimulatedHosts(plan, pages.host_numbers, seed)
        self._free_at = 0.0
        """When the last crawl that was asked for begins, where there are too few crawlers."""

    def take(self, requests: Sequence[CrawlRequest], places: Sequence[Place]) -> None:
        """Begin what was asked for.

        Args:
            requests: as they stand on the topic.
            places: where each stands.
        """
        page_ids = np.array([request.page_id for request in requests], np.int64)
        pages = self._rows.find_many(page_ids).astype(np.int64)
        ready_at = self._begin(len(requests)) + self._hosts.latencies(pages)
        answered = ~self._hosts.is_silent(pages)
        turns = np.ceil(ready_at / TURN_SECONDS)
        for turn in np.unique(turns[answered]).tolist():
            chosen = np.flatnonzero(answered & (turns == turn))
            heapq.heappush(
                self._under_way,
                _Crawls(
                    float(ready_at[chosen].max()),
                    requests=[requests[index] for index in chosen.tolist()],
                    places=[places[index] for index in chosen.tolist()],
                    pages=pages[chosen],
                ),
            )

    def _begin(self, crawls: int) -> NDArray[np.float64]:
        """When crawls that are asked for now begin: at once, or one after the other."""
        now = time.monotonic()
        if self._plan.crawls_per_second is None:
            return np.full(crawls, now)
        begins = max(now, self._free_at) + np.arange(crawls) / self._plan.crawls_per_second
        self._free_at = float(begins[-1]) + 1.0 / self._plan.crawls_per_second
        return begins

    async def turn(self) -> None:
        """Wait for crawls to end, and answer them."""
        wait = TURN_SECONDS
        if self._under_way:
            wait = min(max(self._under_way[0].ready_at - time.monotonic(), 0.0), wait)
        await asyncio.sleep(wait)
        now = time.monotonic()
        while self._under_way and self._under_way[0].ready_at <= now:
            await self._answer(heapq.heappop(self._under_way))

    async def _answer(self, crawls: _Crawls) -> None:
        now = self._clock.now()
        statuses, changed = self._crawl(crawls.pages, (now - self._origin) / SECONDS_PER_DAY)
        digests = self._digests(crawls.pages, statuses)
        answers: ByPlace = {}
        columns = (crawls.requests, crawls.places, statuses.tolist(), changed.tolist(), digests)
        for request, (partition, key), status, is_changed, digest in zip(*columns, strict=True):
            outcome = CrawlOutcome(
                request.url,
                now,
                request.host,
                request.request_id,
                _result(status, is_changed, self._plan.digests),
                digest,
                status or None,
                self._plan.retry_after_seconds if status == TOO_MANY_REQUESTS else None,
            )
            answers.setdefault((CRAWL_OUTCOMES.name, partition), []).append((key, encode(outcome)))
        await self._publisher.queue_batches(answers)

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
        is_dead, has_storm, has_wave = self._hosts.troubles(pages, day)
        statuses[has_wave | (pages == UNKNOWN_PAGE)] = STATUS_OF["gone"]
        statuses[has_storm] = SERVER_ERROR
        statuses[is_dead] = NO_ANSWER
        seen = np.flatnonzero((statuses > NO_ANSWER) & (statuses < 400))
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
        return [f"{p:x}-{v:x}" if NO_ANSWER < status < 400 else None for p, v, status in columns]


def _result(status: int, changed: bool, by_digest: bool) -> Result | None:
    if status == STATUS_OF["gone"]:
        return "gone"
    if status >= 400 or status == NO_ANSWER:
        return "failed"
    if by_digest:
        return None
    return "changed" if changed else "unchanged"
