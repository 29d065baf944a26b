"""GetStats, ListQueues, ListURLs, CountURLs, GetURLStatus: what database and book know."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, ParamSpec, TypeVar

import grpc
import psycopg
import structlog

from services.frontier.api.urlfrontier_pb2 import (
    CountUrlParams,
    KnownURLItem,
    ListUrlParams,
    Long,
    Pagination,
    QueueList,
    QueueWithinCrawlParams,
    Stats,
    StringList,
    URLInfo,
    URLItem,
    URLStatusRequest,
)
from services.frontier.book import Book
from services.frontier.names import Names
from services.frontier.refusing import Refused
from shared.contracts.identity import BadUrl, identify
from shared.runtime.clock import Clock
from shared.runtime.databases import databases_of
from shared.runtime.settings import Settings
from shared.store.page_listing import (
    Wanted,
    count_by_state,
    count_pages,
    list_host_names,
    list_pages,
    read_page,
)
from shared.store.page_status import ACTIVE, STATUS_NAMES

log = structlog.get_logger(__name__)

DEFAULT_SIZE: Final = 100
"""Of a list, as the API has it."""

MOST_LISTED: Final = 10_000
AT_ONCE: Final = 2
"""Questions to the database."""

STATS_SECONDS: Final = 10.0
"""Counts of all pages are so old at most: they are looked through for them."""

P = ParamSpec("P")
T = TypeVar("T")


class Looking:
    """Answers what is asked of pages and hosts."""

    def __init__(self, settings: Settings, book: Book, names: Names, clock: Clock) -> None:
        self._databases = databases_of(settings)
        self._book = book
        self._names = names
        self._clock = clock
        self._room = asyncio.Semaphore(AT_ONCE)
        self._counts: tuple[float, dict[str, int]] = (float("-inf"), {})
        self._counting = asyncio.Lock()

    async def stats(self, request: QueueWithinCrawlParams) -> Stats:
        """Counts of a host's pages, or of all."""
        self._names.check_crawl(request.crawlID)
        host = self._names.host_or_all(request.key)
        counts = await self._count(host)
        return Stats(
            size=counts["active"],
            inProcess=self._book.in_flight(host),
            counts={
                "completed": counts["away"],
                "never_crawled": counts["never_crawled"],
                "failing": counts["failing"],
                "waiting": self._book.waiting(host),
            },
            numberOfQueues=counts["hosts"],
            crawlID=self._names.crawl_id,
        )

    async def _count(self, host: str | None) -> dict[str, int]:
        if host is not None:
            return await self._ask(count_by_state, self._databases, host)
        async with self._counting:
            counted_at, counts = self._counts
            if time.monotonic() - counted_at > STATS_SECONDS:
                counts = await self._ask(count_by_state, self._databases, None)
                self._counts = (time.monotonic(), counts)
            return counts

    async def queues(self, request: Pagination) -> QueueList:
        """Hosts."""
        self._names.check_crawl(request.crawlID)
        names, total = await self._ask(
            list_host_names,
            self._databases,
            self._clock.now(),
            blocked_too=request.include_inactive,
            start=request.start,
            most=_size(request.size),
        )
        return QueueList(
            values=names,
            total=total,
            start=request.start,
            size=len(names),
            crawlID=self._names.crawl_id,
        )

    async def urls(self, request: ListUrlParams) -> AsyncIterator[URLItem]:
        """Pages."""
        self._names.check_crawl(request.crawlID)
        wanted = self._wanted(request)
        rows = await self._ask(
            list_pages,
            self._databases,
            wanted,
            request.start,
            _size(request.size),
        )
        for row in rows:
            yield self._item(row)

    async def count(self, request: CountUrlParams) -> Long:
        """How many pages there are."""
        self._names.check_crawl(request.crawlID)
        wanted = self._wanted(request)
        pages = await self._ask(count_pages, self._databases, wanted)
        return Long(value=pages)

    def _wanted(self, request: ListUrlParams | CountUrlParams) -> Wanted:
        if "\0" in request.filter:
            # The database would not take it.
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT, "no URL has a zero byte: see the filter"
            )
        return Wanted(self._names.host_or_all(request.key), request.filter, request.ignoreCase)

    async def status(self, request: URLStatusRequest) -> URLItem:
        """One page."""
        self._names.check_crawl(request.crawlID)
        try:
            page = identify(request.url)
        except BadUrl as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        row = await self._ask(read_page, self._databases.of_host(page.host).url, page)
        if row is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, "no page has this URL")
        return self._item(row)

    def _item(self, row: dict[str, Any]) -> URLItem:
        crawled = row["last_crawled_at"] if math.isfinite(row["last_crawled_at"]) else None
        said = {
            "freshet.state": STATUS_NAMES[row["status"]],
            "freshet.importance": f"{row['importance']:g}",
            "freshet.crawls": str(row["crawls"]),
            "freshet.changes": str(row["changes"]),
            "freshet.failures": str(row["failures"]),
        }
        if crawled is not None:
            said["freshet.crawled-at"] = f"{crawled:.3f}"
        info = URLInfo(
            url=row["url"],
            key=identify(row["url"]).host,
            metadata={key: StringList(values=[value]) for key, value in said.items()},
            crawlID=self._names.crawl_id,
        )
        # When it is crawled again is decided at that moment; 0 would say that it never is.
        since = max(int(crawled or row["first_seen_at"]), 1) if row["status"] == ACTIVE else 0
        return URLItem(
            known=KnownURLItem(info=info, refetchable_from_date=since),
            creation_date=max(int(row["first_seen_at"]), 0),
        )

    async def _ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._room:
            try:
                return await asyncio.to_thread(question, *args, **kwargs)
            except psycopg.errors.QueryCanceled as error:
                raise Refused(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    "there are too many pages to look through: ask for those of one key",
                ) from error
            except (psycopg.Error, OSError) as error:
                log.warning("the database cannot be asked", reason=str(error).strip())
                raise Refused(
                    grpc.StatusCode.UNAVAILABLE, "the database does not answer; try again"
                ) from error


def _size(asked: int) -> int:
    return min(asked or DEFAULT_SIZE, MOST_LISTED)
