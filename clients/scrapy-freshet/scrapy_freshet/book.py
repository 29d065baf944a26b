"""What a crawler was asked for, and has not answered: it waits for its host, or is under way. Pure.

Scrapy downloads a few pages of a host at once, and keeps what it is given beyond them in the places
of other hosts' pages: one host that answers slowly would take them all. So what its host has no
place for waits here, until it has one, or until its deadline, and the others go on.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from scrapy_freshet.messages import CrawlOutcome, CrawlRequest, Trace
from scrapy_freshet.positions import Positions

GRACE_SECONDS: Final = 60.0
"""So long after its deadline a request that is on its way is still waited for."""

MOST_REMEMBERED: Final = 10_000
"""Answered requests, by their ids, some of which are read once more after a rebalance."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that is taken, and not answered yet."""

    request: CrawlRequest
    slot: str
    """Of Scrapy's downloader, which has one for all ports of a host."""
    partition: int
    offset: int
    trace: Trace = None
    """The outcome carries it back, where the request is traced."""
    status: int | None = None
    """What the page's own host answered last; None: nothing yet."""
    outcome: CrawlOutcome | None = None
    """What was downloaded; it counts when the spider is done with it."""
    items: int = 0
    """Those that the spider made of it, and pipelines still work at."""
    scraped: bool = False
    """The spider's callback has ended."""


class Book:
    """All tickets of a crawler."""

    def __init__(self, count: Callable[[str], None], at_once: int, of_host: int) -> None:
        """Begin without any.

        Args:
            count: adds one to a statistic.
            at_once: so many pages Scrapy downloads at once.
            of_host: so many of one host.
        """
        self.positions = Positions()
        self._count = count
        self._at_once = at_once
        self._of_host = of_host
        self._tickets: dict[str, Ticket] = {}
        """By id: those that wait or are under way, and those whose outcomes the broker does not
        have yet."""
        self._waiting: dict[str, dict[str, Ticket]] = {}
        """By slot and by id, in their order."""
        self._under_way: dict[str, Ticket] = {}
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._has_warned = False

    @property
    def waiting(self) -> int:
        """Requests that wait for their hosts."""
        return sum(map(len, self._waiting.values()))

    @property
    def under_way(self) -> Collection[Ticket]:
        """Those that Scrapy was given."""
        return self._under_way.values()

    def take(
        self, request: CrawlRequest, partition: int, offset: int, now: float, trace: Trace = None
    ) -> None:
        """Note a request that was read, and whose place is begun."""
        if not self.positions.is_open(partition, offset):
            return  # it was read before
        request_id = request.request_id
        known = self._tickets.get(request_id)
        if known is not None:
            if (known.partition, known.offset) != (partition, offset):
                # It stands on the topic twice, and is waited for where it was read last.
                self.positions.finish(known.partition, known.offset)
            known.partition, known.offset = partition, offset
        elif request_id in self._answered:
            self.positions.finish(partition, offset)
        elif request.deadline_at <= now:
            self._expired(partition, offset)
        else:
            ticket = Ticket(request, _slot_of(request), partition, offset, trace)
            self._tickets[request_id] = ticket
            self._waiting.setdefault(ticket.slot, {})[request_id] = ticket

    def next(self, now: float) -> CrawlRequest | None:
        """The next request that its host has a place for, which is on its way then.

        A host has as many as Scrapy gives it, and no more than are left free: whatever hosts are
        slow, the next one finds a place.
        """
        taken = Counter(
            ticket.slot for ticket in self._under_way.values() if ticket.outcome is None
        )
        most = min(self._of_host, self._at_once - taken.total())
        while slot := next((slot for slot in self._waiting if taken[slot] < most), None):
            ticket = self._next_of(slot)
            request_id = ticket.request.request_id
            if ticket.request.deadline_at <= now:
                self._expire(ticket)
            elif not self.positions.is_open(ticket.partition, ticket.offset):
                del self._tickets[request_id]  # the partition is somebody else's now
            else:
                self._under_way[request_id] = ticket
                self._count("freshet/requests")
                return ticket.request
        return None

    def _next_of(self, slot: str) -> Ticket:
        waiting = self._waiting.pop(slot)
        ticket = waiting.pop(next(iter(waiting)))
        if waiting:
            self._waiting[slot] = waiting  # behind the others
        return ticket

    def find(self, request_id: str | None) -> Ticket | None:
        """The request with this id, while it is on its way."""
        return None if request_id is None else self._under_way.get(request_id)

    def is_late(self, request_id: str, now: float) -> bool:
        """Whether nobody waits for a request any more: it is answered, or was asked for again."""
        ticket = self._under_way.get(request_id)
        if ticket is not None and ticket.request.deadline_at <= now:
            del self._under_way[request_id]
            self._expire(ticket)
        return request_id not in self._under_way

    def close(self, request_id: str) -> Ticket | None:
        """A request whose outcome is to be sent: it is on its way no longer; None: it is not."""
        return self._under_way.pop(request_id, None)

    def sent(self, ticket: Ticket) -> None:
        """Note that the broker has an outcome. Not before: who reads the request once more until
        then would take it for answered."""
        self._answered[ticket.request.request_id] = None
        if len(self._answered) > MOST_REMEMBERED:
            self._answered.popitem(last=False)
        self._end(ticket)

    def turn(self, now: float) -> None:
        """Let go of what has waited in vain, and of what was lost on its way through Scrapy."""
        for ticket in self._let_go(lambda ticket: ticket.request.deadline_at <= now):
            self._expire(ticket)
        lost = [
            (request_id, ticket)
            for request_id, ticket in self._under_way.items()
            if ticket.request.deadline_at < now - GRACE_SECONDS
        ]
        for request_id, ticket in lost:
            del self._under_way[request_id]
            self._end(ticket)
            self._count("freshet/requests/given_up")
            log.warning("%s was not answered, a minute after its deadline", ticket.request.url)

    def leave(self, partitions: Collection[int]) -> None:
        """Let go of what waits of partitions that others read on.

        They begin at the first request that has not ended, and make the crawls behind it once more.
        Where these are more than what waits, they are spared that, and Freshet asks again for it.
        """
        left = self._let_go(lambda ticket: ticket.partition in partitions)
        waited = Counter(ticket.partition for ticket in left)
        spared = {one for one in waited if self.positions.ended_behind(one) > waited[one]}
        for ticket in left:
            if ticket.partition in spared:
                self._count("freshet/requests/left")
                self._end(ticket)
            else:
                del self._tickets[ticket.request.request_id]

    def _let_go(self, which: Callable[[Ticket], bool]) -> list[Ticket]:
        """Some of those that wait, which do so no longer."""
        gone = [one for waiting in self._waiting.values() for one in waiting.values() if which(one)]
        for ticket in gone:
            waiting = self._waiting[ticket.slot]
            del waiting[ticket.request.request_id]
            if not waiting:
                del self._waiting[ticket.slot]
        return gone

    def _end(self, ticket: Ticket) -> None:
        del self._tickets[ticket.request.request_id]
        self.positions.finish(ticket.partition, ticket.offset)

    def _expire(self, ticket: Ticket) -> None:
        self._expired(ticket.partition, ticket.offset)
        self._end(ticket)

    def _expired(self, partition: int, offset: int) -> None:
        """Leave a request alone whose page has been asked for again since."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "requests are left alone after their deadline: the fleet is slower than the "
                "budget, or a host than its limit, the fleet was away, or this machine's clock is "
                "wrong"
            )
        self._count("freshet/requests/expired")
        self.positions.finish(partition, offset)


def _slot_of(request: CrawlRequest) -> str:
    try:
        return urlsplit(request.url).hostname or request.host
    except ValueError:
        return request.host
