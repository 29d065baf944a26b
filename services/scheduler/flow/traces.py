"""Traces from signals to the requests that come of them. In the shards' thread."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.contracts.codec import BadMessage, decode
from shared.contracts.messages import CrawlRequest, PageSignal
from shared.runtime.tracing import APPLIED, REQUESTED, Mark, Span, Traced, Tracing, traced_in
from shared.runtime.wall_time import WALL
from shared.store.page_lookup import UNKNOWN

MOST_PAGES: Final = 5_000
"""Pages whose traced signal has not led to a request yet; those that wait longest are forgotten."""

_CELLS: Final = 1 << 16
"""More than ten for each of them, so that few pages share one; a power of two."""

_LOW_BITS: Final = _CELLS - 1


class _Waiting:
    """Marks of pages that wait for their request; to find that none of many pages does costs next
    to nothing."""

    def __init__(self) -> None:
        self._marks: OrderedDict[int, Mark] = OrderedDict()
        self._counts = np.zeros(_CELLS, np.uint8)
        """Of waiting pages whose ids end alike. Where they are 256, one of their traces may end."""

    def __bool__(self) -> bool:
        """Whether any waits."""
        return bool(self._marks)

    def add(self, page_id: int, mark: Mark) -> None:
        """Note the mark of a page, unless it has one."""
        if page_id in self._marks:
            return
        self._marks[page_id] = mark
        self._counts[page_id & _LOW_BITS] += 1
        if len(self._marks) > MOST_PAGES:
            self._pop(next(iter(self._marks)))

    def taken(self, page_ids: NDArray[np.int64]) -> dict[int, Mark]:
        """The marks of those among some pages that have one, by their places; they have none
        afterwards."""
        places = np.flatnonzero(self._counts[page_ids & _LOW_BITS])
        candidates = zip(places.tolist(), page_ids[places].tolist(), strict=True)
        return {place: self._pop(page) for place, page in candidates if page in self._marks}

    def _pop(self, page_id: int) -> Mark:
        self._counts[page_id & _LOW_BITS] -= 1
        return self._marks.pop(page_id)


class PageTraces:
    """Remembers of which pages signals are traced, until they are asked for. Not over a restart."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._lot = tracing.lot()
        self._waiting = _Waiting()

    def traced_in(self, signals: Sequence[ConsumerRecord]) -> Traced[ConsumerRecord]:
        """Page-signals that are traced, as many as there is room for. To be looked for before they
        are applied (`shared.runtime.tracing.marks_of`)."""
        return traced_in(self._tracing, [signals], WALL.now())

    def applied(self, shard: Shard, traced: Traced[ConsumerRecord]) -> None:
        """Note page-signals that were just applied.

        A page's first signal since its last request counts: that one waits for longest.
        """
        now = WALL.now()
        for record, mark in traced:
            try:
                signal = decode(PageSignal, record.value)
            except BadMessage:
                continue
            if shard.row_of(signal.page_id) == UNKNOWN:
                continue
            page_id, began = signal.page_id, record.timestamp / 1000
            span = self._tracing.start(APPLIED, mark, began, now, page_id=page_id, host=signal.host)
            if span is not None:
                span.end(now)
                self._waiting.add(page_id, span.mark)

    def asked_for(
        self, shard: Shard, crawls: Rows, messages: Sequence[tuple[bytes, bytes]]
    ) -> dict[int, Span]:
        """Begin the spans of requests that are traced, by their places.

        Args:
            shard: of the pages.
            crawls: the picks.
            messages: of the requests, in the same order: key and value.
        """
        now = WALL.now()
        room = self._tracing.room(now)
        marks: dict[int, Mark | None] = dict.fromkeys(self._lot.draw(len(messages)) if room else ())
        if self._waiting:
            marks |= self._waiting.taken(shard.page_ids_of(crawls["row"]))
        spans = {}
        for place, mark in islice(marks.items(), room):
            request = decode(CrawlRequest, messages[place][1])
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
