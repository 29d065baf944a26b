"""GetURLs: requests to crawl, handed out; and whether any are."""

from collections.abc import AsyncIterator

from services.frontier import metrics
from services.frontier.api.urlfrontier_pb2 import GetParams, StringList, URLInfo
from services.frontier.book import Book, Ticket
from services.frontier.names import Names
from services.frontier.outcomes import GIVEN_AT, REQUEST_ID
from shared.runtime.clock import Clock


class Giving:
    """Hands out what the schedulers ask for."""

    def __init__(self, book: Book, names: Names, clock: Clock) -> None:
        self._book = book
        self._names = names
        self._clock = clock
        self._is_active = True
        metrics.ACTIVE.set(1)

    @property
    def is_active(self) -> bool:
        """Whether anything is handed out."""
        return self._is_active

    def set_active(self, is_active: bool) -> None:
        """Go on handing out, or hold."""
        self._is_active = is_active
        metrics.ACTIVE.set(is_active)

    async def get(self, request: GetParams) -> AsyncIterator[URLInfo]:
        """What is to be crawled now; what does not reach the client is handed out anew."""
        self._names.check_crawl(request.crawlID)
        host = self._names.host_or_all(request.key)
        if not self._is_active:
            return
        tickets = self._book.take(
            request.max_queues,
            request.max_urls_per_queue,
            host,
            self._clock.span(request.delay_requestable),
            self._clock.now(),
        )
        given = 0
        try:
            for ticket in tickets:
                yield self._info(ticket)
                # The client's connection has taken it.
                given += 1
        finally:
            self._book.put_back(reversed(tickets[given:]))

    def _info(self, ticket: Ticket) -> URLInfo:
        request = ticket.request
        said = {
            REQUEST_ID: request.request_id,
            # As exact as it is: an answer that brings it back is to be the same crawl again.
            GIVEN_AT: repr(ticket.given_at),
            "freshet.deadline": f"{request.deadline_at:.3f}",
            "freshet.reason": request.reason,
        }
        return URLInfo(
            url=request.url,
            key=request.host,
            metadata={key: StringList(values=[value]) for key, value in said.items()},
            crawlID=self._names.crawl_id,
        )
