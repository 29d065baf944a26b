"""A crawler's membership of the fleet: what it was asked, and what it has answered.

Requests are read from Kafka as there is room for them, each is answered by one outcome, and a
request's offset is committed once the broker has its outcome. So a crawler that dies leaves its
requests to the next one, and none is forgotten.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError, MessageSizeTooLargeError
from msgspec.structs import replace
from scrapy.crawler import Crawler

from scrapy_freshet.book import Book, Ticket
from scrapy_freshet.delays import Delays
from scrapy_freshet.ending import for_at_most
from scrapy_freshet.messages import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DISCOVERIES,
    HOST_LIMITS,
    MOST_LINKS_A_MESSAGE,
    TRACE_HEADER,
    CrawlOutcome,
    CrawlRequest,
    Discovery,
    Result,
    Trace,
)
from scrapy_freshet.options import Options, options_of

LOOK_SECONDS: Final = 0.02
"""So often a reader that has no room looks whether it has some now."""

POLL_SECONDS: Final = 0.2
MOST_WAITING: Final = 10_000
"""Requests, some megabytes of them, that wait for their hosts: no more are read then. A host has as
many as its limit is in the time for an answer, 120 as both are set by default."""

TURN_SECONDS: Final = 1.0
"""Between two commits, and two looks for requests that nobody will answer any more."""

LEAVE_SECONDS: Final = 3.0
"""What takes longer to leave the group is given up."""

REVOKE_SECONDS: Final = 5.0
"""So long crawls under way may hold up the group, when it shares its partitions out anew."""

WAIT_SECONDS: Final = (0.1, 5.0)
"""Between two tries to reach a broker that is away: the first, doubling up to the second."""

MOST_POLL_INTERVAL_MS: Final = 3_600_000
"""A crawler whose sites are slow reads nothing for long, and is well all the same: whether it
lives, its heartbeats tell, which come from the same loop."""

LATE: Final = "Its deadline has passed, or it is answered: nobody waits for it"
"""Why a request is not crawled after all."""

log = logging.getLogger(__name__)


class Fleet:
    """One crawler's part in the fleet."""

    def __init__(
        self,
        options: Options,
        count: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set up, without connecting.

        Args:
            options: where Kafka is, and how much may be in flight.
            count: adds one to a statistic.
            clock: Unix seconds.
        """
        self.options = options
        self._count = count
        self._clock = clock
        self._book = Book(count, options.at_once, options.of_host)
        self._sending: set[asyncio.Task[None]] = set()
        self._delays = Delays()
        self._consumer: AIOKafkaConsumer | None = None
        self._producer: AIOKafkaProducer | None = None
        self._turning: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests that are on their way, and messages that the broker does not have yet."""
        return len(self._book.under_way) + len(self._sending)

    @property
    def has_room(self) -> bool:
        """Whether one more request may be taken."""
        return self.in_flight < self.options.max_in_flight

    async def start(self) -> None:
        """Connect, however long the broker is away."""
        kafka = self.options.kafka
        producer = AIOKafkaProducer(acks="all", linger_ms=20, **kafka)
        await _started(producer)
        self._producer = producer
        consumer = AIOKafkaConsumer(
            group_id=self.options.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_interval_ms=MOST_POLL_INTERVAL_MS,
            # What somebody's transaction has given up was never asked for.
            isolation_level="read_committed",
            **kafka,
        )
        consumer.subscribe([self._topic(CRAWL_REQUESTS)], listener=_Listener(self))
        await _started(consumer)
        self._consumer = consumer
        self._turning = asyncio.create_task(self._turn())

    async def requests(self, has_room: Callable[[], bool]) -> AsyncIterator[CrawlRequest]:
        """Requests to crawl, each when there is room for it, until stopped.

        Args:
            has_room: whether the crawler can begin one more.
        """
        while not self._stopping.is_set() and self._consumer is not None:
            is_free = self.has_room and has_room()
            request = self._book.next(self._clock()) if is_free else None
            if request is not None:
                yield request
            elif is_free and self._book.waiting < MOST_WAITING:
                try:
                    await self._read(self._consumer)
                except ConsumerStoppedError:
                    return
            else:
                await asyncio.sleep(LOOK_SECONDS)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        """Take what is asked for; wait for it for a moment, a short one where something waits."""
        seconds = LOOK_SECONDS if self._book.waiting else POLL_SECONDS
        try:
            fetched = await consumer.getmany(
                timeout_ms=round(seconds * 1000), max_records=self.options.max_in_flight
            )
        except ConsumerStoppedError:
            raise
        except KafkaError as error:
            log.warning("cannot read %s: %s", CRAWL_REQUESTS, error)
            await asyncio.sleep(TURN_SECONDS)
            return
        for part in fetched.values():
            for record in part:
                self._take(record)

    def _take(self, record: Any) -> None:
        self._book.positions.begin(record.partition, record.offset)
        try:
            request = msgspec.json.decode(record.value or b"", type=CrawlRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning("%s at %s is no request: %s", record.offset, record.partition, error)
            self._count("freshet/requests/bad")
            self._book.positions.finish(record.partition, record.offset)
        else:
            trace = [one for one in record.headers if one[0] == TRACE_HEADER]
            self._book.take(request, record.partition, record.offset, self._clock(), trace)

    def ticket(self, request_id: str | None) -> Ticket | None:
        """The request with this id, while it is not answered."""
        return self._book.find(request_id)

    def is_late(self, request_id: str | None) -> bool:
        """Whether a request of Freshet's is not to be crawled any more: its answer would be to
        nobody, and the crawl one more than the budget and the host's limit allow."""
        return request_id is not None and self._book.is_late(request_id, self._clock())

    def answer(self, request_id: str, outcome: CrawlOutcome) -> None:
        """Say what came of a request; what is said after that does not count."""
        ticket = self._book.close(request_id)
        if ticket is not None:
            self._keep(self._send_outcome(ticket, outcome))

    def fail(self, request_id: str, result: Result = "failed") -> None:
        """Say that a crawl gave no content."""
        ticket = self._book.find(request_id)
        if ticket is not None:
            request = ticket.request
            told = CrawlOutcome(request.url, request.host, request_id, self._clock(), result)
            self.answer(request_id, replace(told, http_status=ticket.status))

    def settle(self, request_id: str) -> None:
        """Answer a request with what was downloaded, once nobody works at it any more."""
        ticket = self._book.find(request_id)
        if ticket is not None and ticket.outcome and ticket.scraped and ticket.items <= 0:
            self.answer(request_id, ticket.outcome)

    def discover(self, request_id: str, links: Sequence[str]) -> None:
        """Say to what the page of a request links, while the request is not answered."""
        ticket = self._book.find(request_id)
        if ticket is None:
            return
        request, now = ticket.request, self._clock()
        for begin in range(0, len(links), MOST_LINKS_A_MESSAGE):
            some = links[begin : begin + MOST_LINKS_A_MESSAGE]
            message = msgspec.json.encode(Discovery(request.url, list(some), now))
            self._keep(self._send(DISCOVERIES, request.host, message))
            self._count("freshet/discoveries")

    def delay(self, host: str, seconds: float) -> None:
        """Say how far apart a host's crawls are to be, where that is news; 0: as is usual."""
        if self._producer is None:
            return
        under_way = (ticket.request.host for ticket in self._book.under_way)
        if (limit := self._delays.news(host, seconds, under_way)) is not None:
            self._count("freshet/host_limits")
            self._keep(self._send(HOST_LIMITS, host, msgspec.json.encode(limit)))

    async def stop(self) -> None:
        """Send and commit what was answered, and leave. What was not goes to other crawlers."""
        self._stopping.set()
        if self._turning is not None:
            self._turning.cancel()
        await for_at_most(self.options.stop_seconds, self._finish())
        for sending in self._sending:
            sending.cancel()
        clients = [one.stop() for one in (self._consumer, self._producer) if one is not None]
        self._consumer = self._producer = None
        await for_at_most(LEAVE_SECONDS, *clients)

    async def _finish(self) -> None:
        self._book.leave(self._book.positions.partitions)
        if self._sending:
            await asyncio.wait(self._sending)
        await self._commit()

    def _topic(self, name: str) -> str:
        return self.options.topic_prefix + name

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_outcome(self, ticket: Ticket, outcome: CrawlOutcome) -> None:
        await self._send(CRAWL_OUTCOMES, outcome.host, msgspec.json.encode(outcome), ticket.trace)
        self._book.sent(ticket)
        self._count(f"freshet/outcomes/{outcome.result or 'digest'}")

    async def _send(self, topic: str, host: str, message: bytes, trace: Trace = None) -> None:
        """Send until the broker has it, or never would; aiokafka's default partitioner is ours."""
        (wait, most), name = WAIT_SECONDS, self._topic(topic)
        while self._producer is not None:
            try:
                await self._producer.send_and_wait(name, message, host.encode(), headers=trace)
            except KafkaError as error:
                self._count("freshet/send_errors")
                log.warning("the broker did not take a message for %s: %r", topic, error)
                if isinstance(error, MessageSizeTooLargeError):
                    return
                await asyncio.sleep(wait)
                wait = min(2 * wait, most)
            else:
                return

    async def _turn(self) -> None:
        while True:
            await asyncio.sleep(TURN_SECONDS)
            self._book.turn(self._clock())
            await self._commit()

    async def _commit(self) -> None:
        positions = self._book.positions.to_commit()
        if not positions or self._consumer is None:
            return
        topic = self._topic(CRAWL_REQUESTS)
        offsets = {TopicPartition(topic, number): at for number, at in positions.items()}
        try:
            await self._consumer.commit(offsets)
        except KafkaError as error:
            # Tried again at the next turn; a partition that is another's now is read by it.
            log.info("positions were not committed: %r", error)
        else:
            self._book.positions.committed(positions)

    async def revoked(self, partitions: Iterable[int]) -> None:
        """Finish what is under way of these partitions, for a while, before others read them."""
        leaving = set(partitions)
        self._book.leave(leaving)
        for _ in range(round(REVOKE_SECONDS / LOOK_SECONDS)):
            if not self._sending and not any(
                ticket.partition in leaving for ticket in self._book.under_way
            ):
                break
            await asyncio.sleep(LOOK_SECONDS)
        await self._commit()
        for partition in leaving:
            self._book.positions.forget(partition)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._fleet.revoked(tp.partition for tp in revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        log.info("this crawler has %s of the partitions", len(list(assigned)))


async def _started(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start a client once the broker is there; one that is given up is stopped."""
    wait, most = WAIT_SECONDS
    try:
        while True:
            try:
                await client.start()
            except KafkaError as error:
                log.warning("waiting for Kafka: %s", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, most)
            else:
                return
    except BaseException:
        await client.stop()
        raise


_FLEETS: WeakKeyDictionary[Crawler, Fleet] = WeakKeyDictionary()


def fleet_of(crawler: Crawler) -> Fleet:
    """The fleet's part that a crawler is: its two middlewares share it."""
    if crawler not in _FLEETS:
        stats = crawler.stats
        if stats is None:
            raise RuntimeError("the crawler has no statistics yet: it is not being built by Scrapy")
        _FLEETS[crawler] = Fleet(options_of(crawler.settings), stats.inc_value)
    return _FLEETS[crawler]
