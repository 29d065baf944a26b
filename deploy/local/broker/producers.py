"""What a partition remembers of idempotent producers, to store each batch once.

The rules are those of Kafka's ProducerStateManager: the last five batches of a producer are known,
a repeated one is answered with its first offset and its time, a gap in the sequence is refused.
"""

from collections import deque

import msgspec

from deploy.local.broker.batch import NO_TIMESTAMP, BatchHeader
from deploy.local.broker.protocol import ErrorCode, RequestError

REMEMBERED_BATCHES = 5
"""Kafka's limit of batches in flight for an idempotent producer."""
MAX_PRODUCERS = 5_000
"""Producers remembered by a partition; the longest silent is forgotten first."""
_SEQUENCE_LIMIT = 1 << 31


class ProducerBatch(msgspec.Struct, array_like=True):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int = NO_TIMESTAMP
    """The latest of its records, Unix milliseconds; the default: noted by a broker of before."""


class ProducerState(msgspec.Struct, array_like=True):
    """Epoch and last batches of one producer."""

    epoch: int
    batches: list[ProducerBatch]


class ProducerTable:
    """The idempotent producers of one partition."""

    def __init__(self, states: dict[int, ProducerState] | None = None) -> None:
        self._states: dict[int, tuple[int, deque[ProducerBatch]]] = {}
        for producer_id, state in (states or {}).items():
            self._states[producer_id] = (state.epoch, deque(state.batches, REMEMBERED_BATCHES))

    def snapshot(self) -> dict[int, ProducerState]:
        """Return everything remembered, to be stored beside a sealed segment."""
        return {
            producer_id: ProducerState(epoch, list(batches))
            for producer_id, (epoch, batches) in self._states.items()
        }

    def find_duplicate(self, header: BatchHeader) -> ProducerBatch | None:
        """Return this batch as it is already stored, None if it is new.

        Raises RequestError if the producer's epoch is old or its sequence has a gap.
        """
        if header.producer_id < 0 or header.producer_id not in self._states:
            return None
        epoch, batches = self._states[header.producer_id]
        if header.producer_epoch < epoch:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has moved on to epoch {epoch}",
            )
        if header.producer_epoch > epoch:
            expected = 0
        else:
            last = _last_sequence(header)
            for batch in batches:
                if batch.first_sequence == header.base_sequence and batch.last_sequence == last:
                    return batch
            expected = (batches[-1].last_sequence + 1) % _SEQUENCE_LIMIT
        if header.base_sequence != expected:
            raise RequestError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, "
                f"expected {expected}",
            )
        return None

    def remember(self, header: BatchHeader, base_offset: int) -> None:
        """Note that a batch has been stored at `base_offset`."""
        if header.producer_id < 0:
            return
        epoch, batches = self._states.pop(header.producer_id, (-1, deque()))
        if epoch != header.producer_epoch:
            batches = deque(maxlen=REMEMBERED_BATCHES)
        sequence = header.base_sequence, _last_sequence(header)
        batches.append(ProducerBatch(*sequence, base_offset, header.max_timestamp))
        self._states[header.producer_id] = (header.producer_epoch, batches)
        if len(self._states) > MAX_PRODUCERS:
            del self._states[next(iter(self._states))]


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCE_LIMIT
