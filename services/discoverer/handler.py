"""A batch of links: judged, the new pages published, everything acknowledged before it returns."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import structlog
from aiokafka import ConsumerRecord

from services.discoverer import metrics
from services.discoverer.taking import Refused, take
from shared.contracts.identity import PageIdentity
from shared.contracts.topics import CRAWL_OUTCOMES, DISCOVERIES, PAGE_UPDATES
from shared.discovery.admission import Admission, Judged, Link
from shared.discovery.updates import updates_by_place
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.isolation import BadShare, Count
from shared.runtime.kafka import may_pass
from shared.runtime.publisher import Publisher
from shared.runtime.retrying import Attempts, until_it_passes
from shared.runtime.settings import Settings
from shared.store.connection import first_line
from shared.store.rights import is_waited_for

log = structlog.get_logger(__name__)

STAGE: Final = "discoverer"

PIECE_BYTES: Final = 4 * 1024 * 1024
"""A batch is done in pieces of about so much: links take several times the memory of their message,
and a batch that was waited for may be all that a consumer reads ahead."""

LINKS_AT_ONCE: Final = 20_000
"""So many are judged, and looked up in the database, together."""

BEAT_SECONDS: Final = 1.0
"""While the database counts, which may take it minutes, somebody says so often that we live."""

T = TypeVar("T")

Found = dict[int, tuple[PageIdentity, float]]
"""New pages by id, and when each was found."""


class DiscoveryHandler:
    """Turns batches of `discoveries` and `crawl-outcomes` into `page-updates`."""

    def __init__(
        self, settings: Settings, clock: Clock, publisher: Publisher, admission: Admission
    ) -> None:
        self._outcomes = settings.topic(CRAWL_OUTCOMES.name)
        self._clock = clock
        self._publisher = publisher
        self._admission = admission
        self._bad_share = BadShare.of(settings)
        self._record_times_count = isinstance(clock, SystemClock)
        self.trouble: str | None = None
        """Why nothing goes on; None: all is well."""
        self.progressed_at = time.monotonic()
        """Wall time of the last sign of life within a batch, for the watchdog."""

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Apply a batch; when this returns, the broker has all that came of it. Waits for it.

        Raises:
            TooManyBadMessages: the batch has too many; they are not set aside.
            KafkaError: something will never be delivered; the batch must be read again.
        """
        for piece in pieces_of(records):
            await self._handle(piece)
        self.trouble = None

    async def _handle(self, records: Sequence[ConsumerRecord]) -> None:
        taken = await asyncio.to_thread(
            take,
            records,
            self._outcomes,
            self._clock.now(),
            record_times_count=self._record_times_count,
        )
        counts = {DISCOVERIES.name: Count(taken.messages, len(taken.refused))}
        self._bad_share.check(counts, time.monotonic())
        links = iter(taken.links.values())
        while piece := list(islice(links, LINKS_AT_ONCE)):
            await self._publish(await self._new_pages(piece))
        await self._set_aside(taken.refused)
        self._bad_share.add(counts, time.monotonic())
        for topic, count in taken.read.items():
            metrics.TAKEN.labels(topic).inc(count)
        metrics.LINKS.labels("repeated").inc(sum(taken.read.values()) - len(taken.links))

    async def _new_pages(self, links: Sequence[Link]) -> Found:
        judged: list[Judged] = []
        async for attempt in self._attempts(is_waited_for, "database"):
            with attempt:
                judged = await self._living(self._admission.judge(links, time.monotonic()))
        became: Counter[str] = Counter()
        found: Found = {}
        for link, was in zip(links, judged, strict=True):
            if was.became != "new" or was.page is None:
                became[was.became] += 1
            elif (before := found.get(was.page.page_id)) is None:
                became["new"] += 1
                found[was.page.page_id] = (was.page, link.found_at)
            else:
                became["repeated"] += 1
                found[was.page.page_id] = (was.page, min(before[1], link.found_at))
        for result, count in became.items():
            metrics.LINKS.labels(result).inc(count)
        return found

    async def _publish(self, found: Found) -> None:
        if not found:
            return
        async for attempt in self._attempts(may_pass, "broker"):
            with attempt:
                shards = await self._publisher.partitions_of(PAGE_UPDATES)
                messages = await asyncio.to_thread(
                    updates_by_place, found.values(), shards, self._admission.said_of
                )
                await self._publisher.send_batches(messages)
        self._admission.remember((page for page, _ in found.values()), time.monotonic())

    async def _set_aside(self, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        async for attempt in self._attempts(may_pass, "broker"):
            with attempt:
                for record, reason in refused:
                    await self._publisher.dead_letter(record, STAGE, reason)
                await self._publisher.flush()

    async def _living(self, working: Awaitable[T]) -> T:
        """The result of what may take long, with signs of life meanwhile."""
        task = asyncio.ensure_future(working)
        while not task.done():
            self.progressed_at = time.monotonic()
            await asyncio.wait([task], timeout=BEAT_SECONDS)
        return task.result()

    def _attempts(self, passes: Callable[[BaseException], bool], server: str) -> Attempts:
        def note(error: BaseException) -> None:
            self.progressed_at = time.monotonic()
            self.trouble = f"the {server} does not answer: {first_line(error) or repr(error)}"
            log.warning("links wait", server=server, error=repr(error))

        return until_it_passes(None, passes, note)


def pieces_of(records: Sequence[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    """Records in their order, as many at a time as a piece has room for."""
    piece: list[ConsumerRecord] = []
    size = 0
    for record in records:
        piece.append(record)
        size += len(record.value or b"")
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
