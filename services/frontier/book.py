"""What was asked for and is not answered yet: read, handed out, handed out again. Pure.

A request has a ticket from its reading to its answer, or to its deadline: then the scheduler has
counted it as failed, and an answer would be to nothing. Until then its offset is not committed, so
whoever reads after a crash is asked again for all that was not answered. Times are Unix seconds.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from services.frontier import metrics
from services.frontier.positions import Positions
from shared.contracts.messages import CrawlRequest

MOST_ANSWERED: Final = 10_000
"""Answered requests that are remembered, some of which are read once more after a rebalance."""

MOST_BLOCKED: Final = 10_000
"""Hosts whose blocks hold here at once; the others' hold as soon as schedulers know of them."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that is not answered."""

    request: CrawlRequest
    partition: int
    offset: int
    given_at: float | None = None
    """When it was handed out, the first time."""
    again_at: float = 0.0
    """From then on it may be handed out again; where it is handed out."""
    waits: bool = True
    """Whether it is to be handed out."""


class Book:
    """All tickets of a process."""

    def __init__(self, most: int) -> None:
        """Begin without any.

        Args:
            most: tickets; while there are so many, nothing is to be read.
        """
        self.positions = Positions()
        self._most = most
        self._tickets: dict[str, Ticket] = {}
        self._by_url: dict[str, str] = {}
        self._waiting: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._waiting_count = 0
        self._answered: OrderedDict[str, float] = OrderedDict()
        self._blocked: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Host → until when it is blocked, and when schedulers know of that."""

    @property
    def room(self) -> int:
        """How many more may be read."""
        return max(self._most - len(self._tickets), 0)

    def in_flight(self, host: str | None = None) -> int:
        """Requests that are handed out, and not answered; of one host or of all."""
        if host is None:
            return len(self._tickets) - self._waiting_count
        of_host = (t for t in self._tickets.values() if t.request.host == host)
        return sum(not ticket.waits for ticket in of_host)

    def waiting(self, host: str | None = None) -> int:
        """Requests that are to be handed out; of one host or of all."""
        return self._waiting_count if host is None else len(self._waiting.get(host, ()))

    def knows(self, host: str) -> bool:
        """Whether a host has requests that are not answered."""
        return host in self._waiting or self.in_flight(host) > 0

    def begin(self, request: CrawlRequest, partition: int, offset: int, now: float) -> None:
        """Note a request that was read."""
        self.positions.begin(partition, offset)
        known = self._tickets.get(request.request_id)
        if known is not None:
            if (known.partition, known.offset) != (partition, offset):
                # The same request was sent twice: it is waited for where it was read last.
                self.positions.finish(known.partition, known.offset)
            known.partition, known.offset = partition, offset
        elif request.request_id in self._answered:
            self.positions.finish(partition, offset)
        elif request.deadline_at <= now:
            metrics.REQUESTS.labels("expired").inc()
            self.positions.finish(partition, offset)
        else:
            ticket = Ticket(request, partition, offset)
            self._tickets[request.request_id] = ticket
            self._by_url[request.url] = request.request_id
            self._wait(ticket)

    def pass_over(self, partition: int, offset: int) -> None:
        """Note a record that is no request."""
        metrics.REQUESTS.labels("bad").inc()
        self.positions.begin(partition, offset)
        self.positions.finish(partition, offset)

    def take(
        self, hosts: int, each: int, host: str | None, seconds: float, now: float
    ) -> list[Ticket]:
        """Hand requests out, the hosts in turn, of each the oldest first.

        Args:
            hosts: of how many at most; 0: of any number.
            each: how many of one host at most; 0: any number.
            host: of this one alone; None: of any.
            seconds: after so long they may be handed out again; 0: not at all.
            now: the time.
        """
        taken: list[Ticket] = []
        names = [host] if host is not None else None
        left = hosts or len(self._waiting)
        for name in names if names is not None else list(self._waiting):
            if left == 0:
                break
            of_host = self._take_of(name, each, seconds, now) if name in self._waiting else []
            taken += of_host
            left -= bool(of_host)
        return taken

    def _take_of(self, host: str, each: int, seconds: float, now: float) -> list[Ticket]:
        queue = self._waiting.pop(host)
        until, known_at = self._blocked.get(host, (0.0, 0.0))
        held = known_at if until > now else float("-inf")
        taken: list[Ticket] = []
        kept: list[Ticket] = []
        while queue and (each == 0 or len(taken) < each):
            ticket = queue.popleft()
            if ticket.request.deadline_at <= now:
                queue.appendleft(ticket)
                break
            (kept if ticket.request.requested_at <= held else taken).append(ticket)
        queue.extendleft(reversed(kept))
        for ticket in taken:
            again = ticket.given_at is not None
            metrics.REQUESTS.labels("given-again" if again else "given").inc()
            ticket.given_at = ticket.given_at if again else now
            ticket.again_at = now + seconds if seconds > 0 else ticket.request.deadline_at
            ticket.waits = False
        self._waiting_count -= len(taken)
        if queue:
            self._waiting[host] = queue
        return taken

    def put_back(self, tickets: Iterable[Ticket]) -> None:
        """Let requests be handed out anew, which did not reach their client."""
        for ticket in tickets:
            if ticket.request.request_id in self._tickets and not ticket.waits:
                self._wait(ticket, first=True)

    def block(self, host: str, until: float, known_at: float) -> None:
        """Hand out nothing of a host until a time, but for what schedulers ask for though they know
        of the block: whoever spoke of the host last may have ended it (`freshet hosts unblock`).

        Args:
            host: by name.
            until: when the block ends.
            known_at: when schedulers go by it.
        """
        self._blocked.pop(host, None)
        self._blocked[host] = until, known_at
        if len(self._blocked) > MOST_BLOCKED:
            self._blocked.popitem(last=False)

    def find(self, request_id: str | None, url: str) -> Ticket | None:
        """The request that an answer is to: the one it names, else the last one for its URL."""
        return self._tickets.get(request_id or self._by_url.get(url, ""))

    def crawled_at(self, request_id: str | None) -> float | None:
        """When the page of an answered request was read; None: it is not answered, or long ago."""
        return self._answered.get(request_id or "")

    def answer(self, ticket: Ticket, crawled_at: float) -> None:
        """Note that the broker has a request's outcome, and when that says that the page was read:
        whoever says it again says the same."""
        request_id = ticket.request.request_id
        if request_id in self._tickets:
            metrics.REQUESTS.labels("answered").inc()
            self._answered[request_id] = crawled_at
            if len(self._answered) > MOST_ANSWERED:
                self._answered.popitem(last=False)
            self._end(ticket)

    def turn(self, now: float) -> None:
        """Let go of what is late, and let be handed out again what has been out for too long."""
        for ticket in list(self._tickets.values()):
            if ticket.request.deadline_at <= now:
                never = ticket.given_at is None
                metrics.REQUESTS.labels("expired" if never else "unanswered").inc()
                self._end(ticket)
            elif not ticket.waits and ticket.again_at <= now:
                self._wait(ticket, first=True)
        for host in [host for host, (until, _) in self._blocked.items() if until <= now]:
            del self._blocked[host]
        metrics.WAITING.set(self._waiting_count)
        metrics.IN_FLIGHT.set(self.in_flight())

    def share(self, partitions: Iterable[int]) -> None:
        """Go on with these partitions alone, from what was committed.

        What is handed out stays known, whoever its partition is now: its answer may come here.
        """
        ours = set(partitions)
        for ticket in list(self._tickets.values()):
            self.positions.forget(ticket.partition)
            if ticket.waits and ticket.partition not in ours:
                self._end(ticket)
        for partition in ours:
            self.positions.forget(partition)

    def _wait(self, ticket: Ticket, *, first: bool = False) -> None:
        queue = self._waiting.setdefault(ticket.request.host, deque())
        if first:
            queue.appendleft(ticket)
        else:
            queue.append(ticket)
        ticket.waits = True
        self._waiting_count += 1

    def _end(self, ticket: Ticket) -> None:
        request = ticket.request
        del self._tickets[request.request_id]
        if self._by_url.get(request.url) == request.request_id:
            del self._by_url[request.url]
        if ticket.waits:
            queue = self._waiting[request.host]
            queue.remove(ticket)
            self._waiting_count -= 1
            if not queue:
                del self._waiting[request.host]
        self.positions.finish(ticket.partition, ticket.offset)
