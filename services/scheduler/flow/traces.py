"""Traces from signals to the requests that come of them. In the shards' thread."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

from aiokafka import ConsumerRecord

from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.contracts.codec import BadMessage, decode
from shared.contracts.messages import CrawlRequest, PageSignal
from shared.runtime.tracing import APPLIED, REQUESTED, Mark, Span, Tracing, marks_of
from shared.runtime.wall_time import WALL
from shared.store.page_lookup import UNKNOWN

MOST_PAGES: Final = 5_000
"""Pages whose traced signal has not led to a request yet; those that wait longest are forgotten."""


class PageTraces:
    """Remembers of which pages signals are traced, until they are asked for. Not over a restart."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._lot = tracing.lot()
        self._waiting: OrderedDict[int, Mark] = OrderedDict()

    def applied(self, shard: Shard, records: Sequence[ConsumerRecord]) -> None:
        """Note page-signals that were just applied; those without a header cost nothing.

        A page's first signal since its last request counts: that one waits for longest.
        """
        room = self._tracing.room(WALL.now())
        for place, mark in islice(marks_of(records), room) if room else ():
            record = records[place]
            try:
                signal = decode(PageSignal, record.value)
            except BadMessage:
                continue
            if shard.row_of(signal.page_id) == UNKNOWN:
                continue
            now, page_id = WALL.now(), signal.page_id
            told = {"page_id": page_id, "host": signal.host}
            span = self._tracing.start(APPLIED, mark, record.timestamp / 1000, now, **told)
            if span is not None:
                span.end(now)
                self._waiting.setdefault(page_id, span.mark)
                if len(self._waiting) > MOST_PAGES:
                    self._waiting.popitem(last=False)

    def asked_for(
        self, shard: Shard, crawls: Rows, messages: Sequence[tuple[bytes, bytes]]
    ) -> dict[int, Span]:
        """Begin the spans of requests that are traced, by their places.

        Args:
            shard: of the pages.
            crawls: the picks.
            messages: of the requests, in the same order: key and value.
        """
        room = self._tracing.room(WALL.now())
        marks: dict[int, Mark | None] = dict.fromkeys(self._lot.draw(len(messages)) if room else ())
        if self._waiting:
            page_ids = shard.page_ids_of(crawls["row"]).tolist()
            for page_id in self._waiting.keys() & page_ids:
                marks[page_ids.index(page_id)] = self._waiting.pop(page_id)
        spans = {}
        for place, mark in islice(marks.items(), room):
            request, now = decode(CrawlRequest, messages[place][1]), WALL.now()
            span = self._tracing.start(
                REQUESTED,
                mark,
                now,
                now,
                page_id=request.page_id,
                host=request.host,
                request_id=request.request_id,
                reason=request.reason,
            )
            if span is not None:
                spans[place] = span
        return spans
