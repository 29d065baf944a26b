"""Which signals are traced, and from where on: those that are drawn, and some that come traced."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from aiokafka import ConsumerRecord

from shared.contracts.codec import BadMessage, decode
from shared.contracts.identity import BadUrl, identify
from shared.contracts.messages import PageSignal, Signal
from shared.runtime.tracing import RECEIVED, Mark, Span, Tracing, mark_in

PRODUCERS_PART: Final = 0.5
"""Of the share that is traced, so much at most goes to producers' own traces: whoever sends with
every signal that it is sampled cannot crowd the others out."""

MOST_SAVED: Final = 10.0
"""Traces that producers did not begin, and may begin later."""


class SignalTraces:
    """Chooses among the signals of an ingester. Signals are traced as they are accepted."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._lot = tracing.lot()
        self._saved = 1.0

    def begun(
        self,
        records: Sequence[ConsumerRecord],
        accepted: Sequence[PageSignal],
        headed: Sequence[int],
        now: float,
    ) -> dict[int, Span]:
        """The spans of accepted signals that are traced, by their places.

        Args:
            records: as they were read.
            accepted: what of them passes, in the same order.
            headed: indices of the records that carry a header.
            now: Unix seconds of the wall.
        """
        room = self._tracing.room(now)
        if not room:
            return {}
        theirs = self._producers_own(records, headed)
        drawn = self._lot.draw(len(records), but=theirs)
        wanted: dict[int, Mark | None] = dict.fromkeys(drawn) | theirs
        marks = dict(islice(wanted.items(), room))
        spans = {}
        for place, index in _places(marks, records, accepted).items():
            signal, record = accepted[place], records[index]
            began = record.timestamp / 1000 if record.timestamp > 0 else now
            span = self._tracing.start(
                RECEIVED,
                marks[index],
                began,
                now,
                page_id=signal.page_id,
                host=signal.host,
                source=signal.source,
            )
            if span is not None:
                spans[place] = span
        return spans

    def _producers_own(
        self, records: Sequence[ConsumerRecord], headed: Sequence[int]
    ) -> dict[int, Mark]:
        """Traces that producers began, as many as they may; as many less are drawn afterwards."""
        earned = PRODUCERS_PART * self._tracing.share * len(records)
        self._saved = min(self._saved + earned, max(MOST_SAVED, earned))
        taken: dict[int, Mark] = {}
        for index in headed:
            if self._saved < 1.0:
                break
            mark = mark_in(records[index].headers)
            if mark is not None:
                taken[index] = mark
                self._saved -= 1.0
        self._lot.owe(len(taken))
        return taken


def _places(
    chosen: Mapping[int, Mark | None],
    records: Sequence[ConsumerRecord],
    accepted: Sequence[PageSignal],
) -> dict[int, int]:
    """Where among the accepted signals those of chosen records are: place → index of the record."""
    if not chosen or len(accepted) == len(records):
        return {index: index for index in chosen}
    wanted = {page: index for index in chosen if (page := _page_of(records[index])) is not None}
    return {
        place: wanted[signal.page_id]
        for place, signal in enumerate(accepted)
        if signal.page_id in wanted
    }


def _page_of(record: ConsumerRecord) -> int | None:
    try:
        return identify(decode(Signal, record.value).url).page_id
    except (BadMessage, BadUrl):
        return None
