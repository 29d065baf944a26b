"""What stands on the topics and in Postgres after a run, and the promises that must hold of it.

Made from the records alone, by rules written down here once more, so that no fault of the system's
own books can hide one of its deeds.
"""

import asyncio
import contextlib
import itertools
import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import psycopg
from aiokafka import ConsumerRecord
from live_run import CRAWLS_PER_SECOND, PATIENCE_SECONDS, LiveRun

from services.verify.records import decoded, end_offsets, read_topic
from shared.contracts.identity import BadUrl, identify, shard_of
from shared.contracts.messages import CrawlOutcome, CrawlRequest, PageSignal, Signal
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    PAGE_SIGNALS,
    SIGNALS,
)
from shared.runtime.settings import Settings

QUIET_SECONDS = 1.5
"""Without a new record for so long, all that was under way has come."""


async def settled(run: LiveRun) -> None:
    """Take the budget away, and wait until all that was asked for is answered and applied."""
    await run.set_budget(0)
    settings = run.settings
    last, since = -1, time.monotonic()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() - since < QUIET_SECONDS:
        assert time.monotonic() < deadline, f"not settled: {run.status()}"
        status = await asyncio.to_thread(run.status)
        ends = await end_offsets(settings, (CRAWL_REQUESTS, CRAWL_OUTCOMES))
        positions = await asyncio.to_thread(_positions, settings)
        behind = [key for key, end in ends.items() if positions.get(key, end) < end]
        total = sum(ends.values())
        if total != last or status["in_flight"] or behind:
            last, since = total, time.monotonic()
        await asyncio.sleep(0.2)


def _positions(settings: Settings) -> dict[tuple[str, int], int]:
    query = """
        SELECT topic, partition, next_offset FROM stream_positions WHERE consumer = 'estimator'"""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        rows = connection.execute(query).fetchall()
    return {(topic, partition): offset for topic, partition, offset in rows}


@dataclass(frozen=True, slots=True)
class Page:
    """A page as Postgres has it."""

    url: str
    crawls: int
    last_crawled_at: float
    last_signal_at: float
    importance: float
    observations: int


@dataclass(slots=True)
class Ledger:
    """The records of a run, and the state that they led to."""

    settings: Settings
    requests: list[tuple[ConsumerRecord, CrawlRequest]] = field(default_factory=list)
    outcomes: list[tuple[ConsumerRecord, CrawlOutcome]] = field(default_factory=list)
    signals: list[tuple[ConsumerRecord, Signal]] = field(default_factory=list)
    page_signals: list[tuple[ConsumerRecord, PageSignal]] = field(default_factory=list)
    pages: dict[int, Page] = field(default_factory=dict)

    @classmethod
    async def of(cls, run: LiveRun) -> "Ledger":
        """Read everything; the servers of the run are up, and nothing is under way."""
        settings = run.settings
        ledger = cls(settings)
        ledger.requests = decoded(CrawlRequest, await read_topic(settings, CRAWL_REQUESTS))
        ledger.outcomes = decoded(CrawlOutcome, await read_topic(settings, CRAWL_OUTCOMES))
        ledger.signals = decoded(Signal, await read_topic(settings, SIGNALS))
        ledger.pages = await asyncio.to_thread(_read_pages, settings)
        await ledger._await_page_signals()
        return ledger

    async def _await_page_signals(self) -> None:
        """Signals go on to the end: those that were read are given time to be passed on."""
        deadline = time.monotonic() + PATIENCE_SECONDS / 4
        while True:
            read = await read_topic(self.settings, PAGE_SIGNALS)
            self.page_signals = decoded(PageSignal, read)
            if not self.signals_lost() or time.monotonic() > deadline:
                return
            await asyncio.sleep(0.5)

    def crawls_not_applied_once(self, latest: float = math.inf) -> list[str]:
        """Known pages whose count of crawls is not that of their outcomes.

        Args:
            latest: outcomes that claim a later time are refused by rule.
        """
        crawled: dict[int, set[float]] = defaultdict(set)
        for record, outcome in self.outcomes:
            page = _identity(outcome.url, record.partition, self.settings.partitions)
            # All copies were held when the clock began: what claims to be older is late, by rule.
            in_time = self.settings.clock_origin < outcome.crawled_at <= latest
            # Who did not get the page has not crawled it.
            if page is not None and in_time and outcome.result not in {"failed", "gone"}:
                crawled[page].add(outcome.crawled_at)
        wrong = []
        for page_id, page in self.pages.items():
            times = crawled[page_id]
            if page.crawls != len(times):
                wrong.append(f"{page.url}: {page.crawls} crawls, {len(times)} outcomes")
            elif times and page.last_crawled_at != max(times):
                wrong.append(f"{page.url}: last crawled {page.last_crawled_at}, not {max(times)}")
            elif page.observations > page.crawls:
                wrong.append(f"{page.url}: {page.observations} observations, {page.crawls} crawls")
        return wrong

    def signals_lost(self) -> set[tuple[str, float]]:
        """Signals about pages that were not passed on."""
        known = {page.url for page in self.pages.values()}
        passed = {(s.url, s.observed_at) for _, s in self.page_signals}
        sent = {(s.url, s.observed_at) for _, s in self.signals if s.url in known}
        return {pair for pair in sent - passed if pair[1] is not None}

    def in_flight_twice(self) -> list[str]:
        """Pages that were asked for again before the request's outcome was there or it was late."""
        answered: dict[str, float] = {}
        for record, outcome in self.outcomes:
            if outcome.request_id is not None:
                at = record.timestamp / 1000
                answered[outcome.request_id] = min(at, answered.get(outcome.request_id, at))
        by_page: dict[int, list[tuple[ConsumerRecord, CrawlRequest]]] = defaultdict(list)
        for record, request in self._distinct_requests():
            by_page[request.page_id].append((record, request))
        wrong = []
        for asked in by_page.values():
            asked.sort(key=lambda pair: pair[1].requested_at)
            for (_, first), (record, second) in itertools.pairwise(asked):
                late = second.requested_at >= first.deadline_at
                if not late and answered.get(first.request_id, math.inf) > record.timestamp / 1000:
                    wrong.append(f"{first.url}: {first.request_id}, then {second.request_id}")
        return wrong

    def unanswered(self) -> list[str]:
        """Requests that have no outcome, and whose page was not asked for again."""
        answered = {outcome.request_id for _, outcome in self.outcomes}
        last = {}
        for _, request in sorted(self._distinct_requests(), key=lambda p: p[1].requested_at):
            last[request.page_id] = request
        return [r.request_id for r in last.values() if r.request_id not in answered]

    def seconds_over_budget(self) -> dict[int, int]:
        """Wall seconds of the run whose slots hold more than the budget and one."""
        counts: Counter[int] = Counter()
        for _, request in self._distinct_requests():
            since = (request.requested_at - self.settings.clock_origin) / self.settings.clock_speed
            counts[math.floor(since)] += 1
        return {s: n for s, n in counts.items() if n > CRAWLS_PER_SECOND + 1}

    def on_wrong_partitions(self) -> list[str]:
        """Requests that are not on their host's shard."""
        return [
            f"{request.url} on {record.partition}"
            for record, request in self._distinct_requests()
            if shard_of(request.host, self.settings.partitions) != record.partition
        ]

    def _distinct_requests(self) -> list[tuple[ConsumerRecord, CrawlRequest]]:
        """The scheduler's requests: repeats that a test wrote carry the same id."""
        first = {}
        for record, request in self.requests:
            first.setdefault(request.request_id, (record, request))
        return list(first.values())


def _identity(url: str, partition: int, partitions: int) -> int | None:
    with contextlib.suppress(BadUrl):
        page = identify(url)
        return page.page_id if shard_of(page.host, partitions) == partition else None
    return None


def _read_pages(settings: Settings) -> dict[int, Page]:
    query = """
        SELECT p.page_id, u.url, p.crawls, p.last_crawled_at, p.last_signal_at, p.importance,
               (SELECT count(*) FROM observations o
                WHERE o.shard = p.shard AND o.page_id = p.page_id)
        FROM pages p JOIN page_urls u USING (shard, page_id)"""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return {row[0]: Page(*row[1:]) for row in connection.execute(query).fetchall()}
