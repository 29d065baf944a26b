"""A whole crawler for Freshet with Crawlee: pip install crawlee aiokafka msgspec.

KAFKA_BOOTSTRAP_SERVERS says where Kafka is, FRESHET_TOPIC_PREFIX what topics begin with. Before
you let it out, let it refuse addresses that are not public, obey robots.txt, and say who it is.
"""

import asyncio
import hashlib
import logging
import os
import signal
import time
from datetime import timedelta

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from crawlee import Request, RequestState
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.http_clients import ImpitHttpClient
from crawlee.request_loaders import RequestManager
from crawlee.storage_clients import MemoryStorageClient
from yarl import URL

PREFIX = os.environ.get("FRESHET_TOPIC_PREFIX", "")
KAFKA = {"bootstrap_servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")}


class Ticket(msgspec.Struct):
    """A request that is taken and not answered, where it stands, and what its host answered."""

    request_id: str
    url: str
    host: str
    deadline_at: float
    part: TopicPartition | None = None
    offset: int = 0
    found: dict[str, float] = {}
    trace: list[tuple[str, bytes]] = []


class Fleet(RequestManager):
    """Freshet's requests for a crawler of Crawlee's; each is answered, whatever becomes of it."""

    def __init__(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        self._consumer, self._producer = consumer, producer
        self._tickets: dict[str, Ticket] = {}
        self._waiting: list[Ticket] = []
        self._committed: dict[TopicPartition, int] = {}

    async def is_empty(self) -> bool:
        """Whether nothing is to be crawled. Crawlee asks when it has room: then more is read."""
        if not self._waiting:
            await self._commit()
            read = await self._consumer.getmany(timeout_ms=500, max_records=20)
            for part, record in [(one, record) for one in read for record in read[one]]:
                try:
                    ticket = msgspec.json.decode(record.value or b"", type=Ticket)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    logging.warning("%s of %s is no request: %s", record.offset, part, error)
                    continue
                ticket.part, ticket.offset = part, record.offset
                # A request that is traced has a header, which its outcome carries back.
                ticket.trace = [one for one in record.headers if one[0] == "traceparent"]
                if self._tickets.setdefault(ticket.request_id, ticket) is ticket:
                    self._waiting.append(ticket)  # else it is read once more, and under way
        return not self._waiting

    async def fetch_next_request(self) -> Request | None:
        """What is to be crawled next; None: nothing."""
        while self._waiting:
            ticket = self._waiting.pop(0)
            if ticket.deadline_at <= time.time() or ticket.part not in self._consumer.assignment():
                del self._tickets[ticket.request_id]  # it was asked for again, or is another's now
                continue
            try:  # without retries: Freshet asks again, within the limits of the host
                return Request.from_url(ticket.url, unique_key=ticket.request_id, no_retry=True)
            except ValueError:  # no URL for Crawlee
                await self._answer(ticket, {"result": "failed"})
        return None

    async def note(self, context: HttpCrawlingContext) -> None:
        """Note what the host answered, also where Crawlee makes an error of it."""
        response, request = context.http_response, context.request
        ticket, status = self._tickets[request.unique_key], response.status_code
        found = ticket.found = {"crawled_at": time.time(), "http_status": status}
        wait = response.headers.get("retry-after", "")
        if URL(request.loaded_url or ticket.url).host_port_subcomponent != ticket.host:
            # That another host is busy or broken is nothing that the page's own is left alone for,
            # which has answered with some redirect.
            found["http_status"] = status if 200 <= status < 300 or status in {404, 410} else 302
        elif status >= 400 and wait.isdecimal():
            found["retry_after_seconds"] = min(int(wait[:9]), 86_400)
        request.user_data["digest"] = hashlib.sha256(await response.read()).hexdigest()

    async def mark_request_as_handled(self, request: Request) -> None:
        """Answer. Crawlee comes by here once with each request, be it done, failed or skipped."""
        ticket = self._tickets[request.unique_key]
        status = ticket.found.get("http_status", 0)
        done = request.state == RequestState.DONE and 200 <= status < 300
        skipped = request.state == RequestState.SKIPPED  # by robots.txt
        no_content = "disallowed" if skipped else "gone" if status in {404, 410} else "failed"
        found = {"digest": request.user_data["digest"]} if done else {"result": no_content}
        await self._answer(ticket, found)

    async def _answer(self, ticket: Ticket, outcome: dict[str, str]) -> None:
        about = {"request_id": ticket.request_id, "url": ticket.url, "host": ticket.host}
        value = msgspec.json.encode(about | {"crawled_at": time.time()} | ticket.found | outcome)
        # aiokafka's default partitioner is Kafka's, so the host leads to the right partition.
        await self._producer.send_and_wait(
            PREFIX + "crawl-outcomes", value, ticket.host.encode(), headers=ticket.trace
        )
        del self._tickets[ticket.request_id]
        await self._commit()

    async def _commit(self) -> None:
        """Commit up to where all is answered: what is not is read again, here or elsewhere."""
        try:
            at = {part: await self._consumer.position(part) for part in self._consumer.assignment()}
            for ticket in self._tickets.values():
                if ticket.part in at:
                    at[ticket.part] = min(at[ticket.part], ticket.offset)
            if at != self._committed:
                await self._consumer.commit(at)
                self._committed = at
        except KafkaError as error:
            logging.warning("positions were not committed: %r", error)

    async def _no(self, *_request: object, **_more: object) -> int:
        return 0

    # A topic has no end, nothing is tried again here, and no link followed: Freshet asks for each.
    is_finished = get_handled_count = get_total_count = add_request = reclaim_request = drop = _no


async def handle(context: HttpCrawlingContext) -> None:
    """Your part: an error fails the crawl; `user_data["digest"]` may be of what matters only."""


async def main() -> None:
    """Answer requests until stopped."""
    more = {"enable_auto_commit": False, "auto_offset_reset": "earliest"} | KAFKA
    consumer = AIOKafkaConsumer(PREFIX + "crawl-requests", group_id=PREFIX + "crawlers", **more)
    async with consumer, AIOKafkaProducer(acks="all", **KAFKA) as producer:
        fleet = Fleet(consumer, producer)
        crawler = HttpCrawler(
            request_manager=fleet,
            request_handler=handle,
            navigation_timeout=timedelta(seconds=40),  # both within half of a request's time
            request_handler_timeout=timedelta(seconds=15),
            storage_client=MemoryStorageClient(),
            http_client=ImpitHttpClient(browser=None, persist_cookies_per_session=False),
        )
        crawler.post_navigation_hook(fleet.note)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, crawler.stop)
        await crawler.run()


if __name__ == "__main__":
    asyncio.run(main())
