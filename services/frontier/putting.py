"""PutURLs and PutDiscovered: each item is acknowledged when the broker has what it said."""

import asyncio
from typing import Final

from services.frontier import metrics
from services.frontier.api.urlfrontier_pb2 import (
    AckMessage,
    BatchAck,
    DiscoveredBatch,
    URLInfo,
    URLItem,
)
from services.frontier.book import Book, Ticket
from services.frontier.discoveries import Discoveries
from services.frontier.names import Names
from services.frontier.outcomes import (
    REQUEST_ID,
    crawled_at_of,
    found_of,
    given_at_of,
    group_of,
    plain,
)
from services.frontier.refusing import NotStored, Refused
from services.frontier.room import Room
from services.frontier.sending import Sender
from services.frontier.warning import Once
from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.contracts.messages import CrawlOutcome
from shared.contracts.request_ids import requested_at_of
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.clock import Clock

MOST_OF_BATCH: Final = 1_000
"""URLs of a batch that are seen to at once."""

DEPTH: Final = "depth"
"""Of the metadata, as StormCrawler counts: how many links away from its seed a URL is."""

MOST_DIGITS: Final = 9

MOST_ID: Final = 64
"""Characters of a request's id."""

_STATUS: Final = {
    "added": AckMessage.OK,
    "known": AckMessage.SKIPPED,
    "refused": AckMessage.SKIPPED,
    "off": AckMessage.SKIPPED,
    "failed": AckMessage.FAIL,
}


class Putting:
    """Takes what crawlers have found."""

    def __init__(
        self, book: Book, sender: Sender, discoveries: Discoveries, names: Names, clock: Clock
    ) -> None:
        self._book = book
        self._sender = sender
        self._discoveries = discoveries
        self._names = names
        self._clock = clock
        self._once = Once()

    async def put(self, item: URLItem, room: Room) -> AckMessage:
        """Take one item, known or discovered.

        Args:
            item: of a client's stream.
            room: that the discovered ones of that stream have.
        """
        if item.WhichOneof("item") == "known":
            info = item.known.info
            status = await self._put_known(info, item.known.refetchable_from_date)
        else:
            # An item of neither kind has no URL, and is skipped like any bad one.
            info = item.discovered.info
            status = await self._put_within(room, info)
        return AckMessage(ID=item.ID or info.url, status=status)

    async def put_batch(self, batch: DiscoveredBatch) -> BatchAck:
        """Take a batch of discovered URLs."""
        statuses: list[AckMessage.Status] = []
        for start in range(0, len(batch.items), MOST_OF_BATCH):
            part = batch.items[start : start + MOST_OF_BATCH]
            statuses += await asyncio.gather(*(self._put_discovered(info) for info in part))
        return BatchAck(ID=batch.ID, statuses=statuses)

    async def _put_within(self, room: Room, info: URLInfo) -> AckMessage.Status:
        """Take a discovered URL, as long as outcomes need not wait for it."""
        if not await room.enter():
            metrics.DISCOVERED.labels("failed").inc()
            self._once.warn(
                "the database takes long: discovered URLs that have no room meanwhile are to be "
                "sent again"
            )
            return AckMessage.FAIL
        try:
            return await self._put_discovered(info)
        finally:
            room.leave()

    async def _put_discovered(self, info: URLInfo) -> AckMessage.Status:
        if not self._is_ours(info):
            return AckMessage.SKIPPED
        return _STATUS[await self._discoveries.take(info.url, _depth_of(info))]

    async def _put_known(self, info: URLInfo, refetchable_from: int) -> AckMessage.Status:
        if not self._is_ours(info):
            return AckMessage.SKIPPED
        try:
            page = identify(info.url)
        except BadUrl as error:
            self._once.warn("a known URL that is none is skipped", reason=str(error))
            return AckMessage.SKIPPED
        try:
            await self._answer(page, plain(info.metadata), refetchable_from)
        except NotStored:
            metrics.OUTCOMES.labels("not-stored").inc()
            return AckMessage.FAIL
        return AckMessage.OK

    async def _answer(
        self, page: PageIdentity, metadata: dict[str, str], refetchable_from: int
    ) -> None:
        now = self._clock.now()
        request_id = metadata.get(REQUEST_ID, "")[:MOST_ID] or None
        ticket = self._book.find(request_id, page.url)
        if ticket is not None and ticket.request.url != page.url:
            # Metadata that went along to another URL: a link's, or a redirect's.
            request_id, ticket = None, self._book.find(None, page.url)
        if ticket is not None:
            request_id = ticket.request.request_id
        found = found_of(page.url, metadata, refetchable_from, now)
        outcome = CrawlOutcome(
            page.url,
            self._crawled_at(request_id, ticket, metadata, now),
            page.host,
            request_id,
            found.result,
            found.digest,
            found.http_status,
            found.retry_after_seconds,
            found.redirected_to,
            found.canonical_url,
            group=group_of(metadata),
        )
        await self._sender.send(CRAWL_OUTCOMES, page.host, outcome)
        if ticket is not None:
            self._book.answer(ticket, outcome.crawled_at)
        metrics.OUTCOMES.labels(found.result or "digest").inc()
        if not found.is_clear:
            metrics.UNCLEAR.inc()
            self._once.warn(
                "crawlers do not say whether contents changed, so all count as changed: let them "
                "send a digest, as docs/connect/urlfrontier.md says"
            )

    def _crawled_at(
        self, request_id: str | None, ticket: Ticket | None, metadata: dict[str, str], now: float
    ) -> float:
        """When the page was read: what is put again is the same crawl, and no other one."""
        answered = self._book.crawled_at(request_id)
        if answered is not None:
            return answered
        given_at = None if ticket is None else ticket.given_at
        given_at = given_at_of(metadata, requested_at_of(request_id), given_at, now)
        return crawled_at_of(metadata, given_at, now)

    def _is_ours(self, info: URLInfo) -> bool:
        try:
            self._names.check_crawl(info.crawlID)
        except Refused as error:
            self._once.warn("URLs of another crawl are skipped", reason=str(error))
            return False
        return True


def _depth_of(info: URLInfo) -> int | None:
    """The depth of a discovered URL; None: it says none."""
    said = plain(info.metadata).get(DEPTH, "")
    return int(said) if said.isascii() and said.isdigit() and len(said) <= MOST_DIGITS else None
