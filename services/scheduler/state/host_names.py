"""Names of hosts and their numbers: 50 bytes a host, and no Python object for most."""

from collections.abc import Iterator, Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.url_arena import UrlArena
from shared.contracts.identity import host_id_of
from shared.store.growing_table import UNKNOWN, GrowingTable, find_row
from shared.store.reserved import grown, reserved

_SMALLEST: Final = 64
_MOST_AT_HAND: Final = 1 << 17
"""Names that are kept as strings: those that were asked for of late."""


class HostNames:
    """The names, by number. Hosts are told apart by their ids, as everywhere."""

    def __init__(self) -> None:
        self._texts = UrlArena()
        self._ids: NDArray[np.int64] = reserved(_SMALLEST, np.int64)
        self._table = GrowingTable()
        self._at_hand: dict[int, str] = {}

    def __len__(self) -> int:
        return self._table.size

    def __getitem__(self, number: int) -> str:
        name = self._at_hand.get(number)
        if name is None:
            if not 0 <= number < len(self):
                raise IndexError(f"no host has number {number}")
            if len(self._at_hand) >= _MOST_AT_HAND:
                self._at_hand.clear()
            name = self._at_hand[number] = self._texts.get(number)
        return name

    def __iter__(self) -> Iterator[str]:
        return map(self._texts.get, range(len(self)))

    @property
    def texts(self) -> UrlArena:
        """Where the names lie, by number."""
        return self._texts

    def some(self, numbers: NDArray[np.int64]) -> "HostNames":
        """Some of them, with other numbers: 0, 1, …"""
        return HostNames.of(self._texts.get_many(numbers), self._ids[numbers])

    def find(self, name: str) -> int:
        """Number of a host, or `UNKNOWN`."""
        table = self._table
        return int(find_row(table.places, table.leaving, self._ids, host_id_of(name)))

    def has_twin(self, name: str) -> bool:
        """Whether a host, which is not there, has the id of another one that is."""
        number = self.find(name)
        return number != UNKNOWN and self[number] != name

    @classmethod
    def of(cls, names: Sequence[str], ids: NDArray[np.int64]) -> Self:
        """Hosts, each once, numbered from 0 on, with their ids."""
        made, texts = cls(), [name.encode() for name in names]
        lengths = np.fromiter(map(len, texts), np.int32, len(texts))
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        data = np.frombuffer(b"".join(texts), np.uint8)
        made._texts = UrlArena.load(data, starts, lengths, len(texts))
        made._ids = grown(made._ids, max(len(texts), _SMALLEST), used=0)
        made._ids[: len(texts)] = ids
        made._table.make_room(made._ids, len(texts))
        made._table.insert_many(made._ids, np.arange(len(texts), dtype=np.int32))
        return made

    def add(self, name: str) -> int:
        """Number of a host that is not there yet."""
        number = len(self)
        if number == self._ids.size:
            self._ids = grown(self._ids, 2 * number)
        self._ids[number] = host_id_of(name)
        self._texts.set(number, name.encode())
        self._table.make_room(self._ids, 1)
        self._table.insert(self._ids, number)
        return number


__all__ = ["UNKNOWN", "HostNames"]
