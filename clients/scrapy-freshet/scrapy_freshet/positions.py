"""Up to where, in each partition, everything has been answered."""

from collections import deque


class Positions:
    """Offsets of one topic that were begun and finished, in whatever order.

    What may be committed of a partition is its first offset that is begun and not finished: all
    before it need not be read again.
    """

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}

    @property
    def partitions(self) -> set[int]:
        """Those that anything is known of."""
        return set(self._partitions)

    def begin(self, partition: int, offset: int) -> None:
        """Note a record that was read; offsets of a partition come in rising order."""
        if partition not in self._partitions:
            self._partitions[partition] = _Partition(offset)
        self._partitions[partition].begin(offset)

    def finish(self, partition: int, offset: int) -> None:
        """Note that nothing is left to do for a record; of one never begun, nothing is said."""
        if partition in self._partitions:
            self._partitions[partition].finish(offset)

    def is_open(self, partition: int, offset: int) -> bool:
        """Whether a record was begun and not finished, nor its partition forgotten since."""
        known = self._partitions.get(partition)
        return known is not None and offset in known.open

    def ended_behind(self, partition: int) -> int:
        """How many records are finished that stand behind one which is not."""
        known = self._partitions.get(partition)
        return 0 if known is None else known.ended_behind

    def forget(self, partition: int) -> None:
        """Begin anew with a partition: it is somebody else's now, or is read again."""
        self._partitions.pop(partition, None)

    def to_commit(self) -> dict[int, int]:
        """Partition → offset to go on from, where that is not what was committed last."""
        return {
            number: partition.position
            for number, partition in self._partitions.items()
            if partition.position != partition.committed
        }

    def committed(self, positions: dict[int, int]) -> None:
        """Note what the broker has taken."""
        for number, position in positions.items():
            if number in self._partitions:
                self._partitions[number].committed = position


class _Partition:
    def __init__(self, first: int) -> None:
        self.open: set[int] = set()
        self.committed = first
        self._order: deque[int] = deque()
        self._next = first

    @property
    def position(self) -> int:
        while self._order and self._order[0] not in self.open:
            self._order.popleft()
        return self._order[0] if self._order else self._next

    @property
    def ended_behind(self) -> int:
        return len(self._order) - len(self.open) if self.position < self._next else 0

    def begin(self, offset: int) -> None:
        if offset >= self._next:
            self._next = offset + 1
            self._order.append(offset)
            self.open.add(offset)

    def finish(self, offset: int) -> None:
        self.open.discard(offset)
