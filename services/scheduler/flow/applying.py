"""What of a batch is applied at a time: slots are filled between two turns."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import structlog
from aiokafka import ConsumerRecord

from services.scheduler.flow.reader import PAGES_AT_ONCE, TOPIC_ORDER, Reader, Refused
from services.scheduler.flow.traces import PageTraces
from services.scheduler.state.shard import Shard
from shared.contracts.topics import PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime.batches import Batch
from shared.runtime.isolation import Pieces, reason_of

log = structlog.get_logger(__name__)

_TURN_SECONDS: Final = 0.01
"""Of the shards' thread: then it is a tick's turn, if one waits."""

_RECORDS_AT_ONCE: Final = 2_000
"""Of a topic and a shard, which takes some milliseconds."""

_UPDATES_AT_ONCE: Final = 250
"""The same of those that are applied one by one."""


class BatchWork:
    """Applies a batch, topic by topic, in turns. In the shards' thread, but for its making."""

    def __init__(
        self,
        reader: Reader,
        shards: Mapping[int, Shard],
        batch: Batch,
        traces: PageTraces | None,
        reached: Callable[[tuple[str, int], int], None],
    ) -> None:
        """Begin with nothing applied.

        Args:
            reader: applies records.
            shards: of this process, by number.
            batch: their records.
            traces: of pages; None: they are off.
            reached: is told up to which offset a topic and a shard are applied.
        """
        self._reader = reader
        self._shards = shards
        self._batch = batch
        self._traces = traces
        self._reached = reached
        self._steps = self._in_order()

    @property
    def refused(self) -> list[Refused]:
        """What is to be set aside."""
        return self._reader.refused

    def turn(self) -> bool:
        """Go on for some milliseconds; whether all is done."""
        until = time.thread_time() + _TURN_SECONDS
        return all(time.thread_time() < until for _ in self._steps)

    def _in_order(self) -> Iterator[None]:
        """Each step is short, and between two of them all shards are as they should be."""
        ours = {number: self._shards[number] for parts in self._batch.values() for number in parts}
        for topic in TOPIC_ORDER:
            for number, records in self._batch.get(topic, {}).items():
                shard = ours[number]
                most = _UPDATES_AT_ONCE if topic == PAGE_UPDATES.name else _RECORDS_AT_ONCE
                for first in range(0, len(records), most):
                    if self._shards.get(number) is not shard:
                        break  # It is another's by now, or loaded anew: all this is read again.
                    self._apply(shard, topic, records[first : first + most])
                    yield
                    while shard.refreshes.go_on(PAGES_AT_ONCE):
                        yield
                else:
                    self._reached((topic, number), records[-1].offset + 1)

    def _apply(self, shard: Shard, topic: str, records: Sequence[ConsumerRecord]) -> None:
        traces = self._traces if topic == PAGE_SIGNALS.name else None
        traced = traces.traced_in(records) if traces is not None else ()
        apply_in_pieces(self._reader, shard, topic, records)
        if traces is not None and traced:
            traces.applied(shard, traced)


def apply_in_pieces(
    reader: Reader, shard: Shard, topic: str, records: Sequence[ConsumerRecord]
) -> None:
    """Apply records; those over which the code stumbles, each by itself, are refused.

    What of a piece had taken effect before it failed is told again: the shard knows it by its time.
    """
    pieces = Pieces(records)
    for piece in pieces:
        refused_before = len(reader.refused)
        try:
            reader.apply(shard, topic, piece)
        except Exception as error:
            del reader.refused[refused_before:]
            if not pieces.split(piece):
                log.exception("a message always fails and is set aside", topic=topic)
                reader.refused.append(Refused(piece[0], reason_of(error)))
