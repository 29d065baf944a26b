"""What stands on the topics and in Postgres after a run, read past the system itself."""

import asyncio
import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from aiokafka import ConsumerRecord

from services.verify.audit import Transaction
from services.verify.audit import read as read_audit
from services.verify.records import Unreadable, decoded, read_topic
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, CrawlRequest, PageSignal, Signal
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    HOST_LIMITS,
    HOST_PARAMETERS,
    MULTIPLIERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
    Topic,
)
from shared.runtime.kafka import appended_at
from shared.runtime.settings import Settings
from shared.store.layout import fetch_layout

_READ: Final[tuple[Topic, ...]] = (
    *(CRAWL_REQUESTS, CRAWL_OUTCOMES, SIGNALS, PAGE_SIGNALS, PAGE_UPDATES),
    *(HOST_LIMITS, PAGE_PARAMETERS, HOST_PARAMETERS, MULTIPLIERS, DEAD_LETTERS),
)

AWAY: Final = ("redirected", "canonical", "disallowed")
"""Results that take a page out of the order of all others at once."""

NO_CRAWLS: Final = ("failed", "gone", *AWAY)
"""Results of those that did not get the page: it is as old as before."""

_PAGES: Final = """
    SELECT p.page_id, p.shard, u.url, p.status, p.crawls, p.last_crawled_at, p.importance,
           coalesce(c.name, '')
    FROM pages p JOIN page_urls u USING (shard, page_id)
    LEFT JOIN page_classes c ON c.shard = p.shard AND c.number = p.page_class"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as Postgres has it."""

    page_id: int
    shard: int
    url: str
    status: int
    crawls: int
    last_crawled_at: float
    importance: float
    page_class: str = ""
    """Empty: it is of none."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it stands on the topic."""

    request: CrawlRequest
    partition: int
    offset: int
    written_at: float
    """Unix seconds, the broker's."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An outcome as it stands on the topic."""

    outcome: CrawlOutcome
    partition: int
    offset: int
    written_at: float
    """Unix seconds, the broker's."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All of it."""

    settings: Settings
    layout: Layout
    """How the hosts are shared out in the end."""
    raw: dict[str, list[ConsumerRecord]]
    """Topic → records, partition by partition."""
    requests: list[Asked]
    """In order of their slots."""
    outcomes: list[Answered]
    """Partition by partition."""
    signals: list[tuple[float, Signal]]
    """With the time at which each was written, Unix seconds."""
    page_signals: list[PageSignal]
    pages: list[Page]
    observations: list[tuple[int, float, float, int, bool]]
    """Page, time of the crawl, interval in days, signals, changed."""
    transactions: list[Transaction]

    @classmethod
    async def of(cls, settings: Settings, database_url: str) -> "Ledger":
        """Read everything; nothing is under way any more."""
        raw = {topic.name: await read_topic(settings, topic) for topic in _READ}
        pages, observations = await asyncio.to_thread(_read_pages, database_url)
        requests = [
            Asked(message, record.partition, record.offset, _stamp(record))
            for record, message in decoded(CrawlRequest, raw[CRAWL_REQUESTS.name])
        ]
        requests.sort(key=lambda asked: asked.request.requested_at)
        outcomes = [
            Answered(message, record.partition, record.offset, _stamp(record))
            for record, message in decoded(CrawlOutcome, raw[CRAWL_OUTCOMES.name])
        ]
        return cls(
            settings=settings,
            layout=await asyncio.to_thread(fetch_layout, database_url),
            raw=raw,
            requests=requests,
            outcomes=outcomes,
            signals=[
                (_stamp(record), message) for record, message in decoded(Signal, raw[SIGNALS.name])
            ],
            page_signals=[message for _, message in decoded(PageSignal, raw[PAGE_SIGNALS.name])],
            pages=pages,
            observations=observations,
            transactions=await asyncio.to_thread(read_audit, database_url),
        )

    def by_partition(
        self, topics: Iterable[Topic]
    ) -> dict[tuple[str, int], Sequence[ConsumerRecord]]:
        """Records of topics, by topic and partition."""
        found: dict[tuple[str, int], list[ConsumerRecord]] = {
            (topic.name, number): [] for topic in topics for number in range(self.layout.shards)
        }
        for name in {name for name, _ in found}:
            for record in self.raw[name]:
                found[name, record.partition].append(record)
        return dict(found)


def _stamp(record: ConsumerRecord) -> float:
    """When the broker had a record, Unix seconds.

    Raises:
        Unreadable: its topic has its producers' times, by which nobody can be judged.
    """
    at = appended_at(record)
    if at is None:
        raise Unreadable(f"{record.topic} does not have the broker's own times")
    return at


def _read_pages(
    database_url: str,
) -> tuple[list[Page], list[tuple[int, float, float, int, bool]]]:
    with psycopg.connect(database_url) as connection:
        pages = [Page(*row) for row in connection.execute(_PAGES)]
        observations = connection.execute(
            "SELECT page_id, crawled_at, interval_days, signals, changed FROM observations"
        ).fetchall()
    return pages, observations


def _first_written(crawls: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Times of crawls, rising; and when the first outcome was written of each or a later one, with
    infinity at the end."""
    crawls.sort()
    written = [math.inf]
    for _, at in reversed(crawls):
        written.append(min(at, written[-1]))
    return [crawled for crawled, _ in crawls], written[::-1]


def pauses(ledger: Ledger) -> dict[str, list[tuple[float, float, int]]]:
    """Host → when it asked for a pause (the broker had it), until when, Unix seconds; and on which
    partition it did."""
    found: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for answered in ledger.outcomes:
        outcome = answered.outcome
        if outcome.retry_after_seconds is not None:
            until = outcome.crawled_at + outcome.retry_after_seconds
            found[outcome.host].append((answered.written_at, until, answered.partition))
    return found


def first_answers(ledger: Ledger) -> dict[str, float]:
    """Request → when its first answer was written.

    A request is answered by an outcome with its id, or of a crawl of its page that was made after
    it: an earlier request that was late, say.
    """
    by_id: dict[str, float] = {}
    by_url: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for answered in ledger.outcomes:
        outcome = answered.outcome
        by_url[outcome.url].append((outcome.crawled_at, answered.written_at))
        if outcome.request_id is not None:
            earlier = by_id.get(outcome.request_id, math.inf)
            by_id[outcome.request_id] = min(answered.written_at, earlier)
    first_after = {url: _first_written(crawls) for url, crawls in by_url.items()}
    found = {}
    for asked in ledger.requests:
        request = asked.request
        at = by_id.get(request.request_id, math.inf)
        if request.url in first_after:
            crawled, written = first_after[request.url]
            at = min(at, written[bisect.bisect_left(crawled, request.requested_at)])
        if at < math.inf:
            found[request.request_id] = at
    return found
