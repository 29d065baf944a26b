"""What directories and signals of pages say of their rates, of all hosts of a shard.

A host's directories stand in two arrays that all hosts share, rising by their numbers. Those of a
host that gets others are put at the end; when more is forgotten than used, the rest moves together.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.page_factors import ACTIVITY_BINS
from shared.store.reserved import grown

_SMALLEST: Final = 64


class FactorTables(NamedTuple):
    """A row a host, but for the last two."""

    activity: NDArray[np.float32]
    """By the activity of a page; (hosts, ACTIVITY_BINS)."""
    begins: NDArray[np.int32]
    """Where the host's directories begin."""
    counts: NDArray[np.int32]
    directories: NDArray[np.uint16]
    factors: NDArray[np.float32]


class Factors:
    """The factors of a shard's hosts."""

    def __init__(self, hosts: int) -> None:
        self.tables = FactorTables(
            np.ones((hosts, ACTIVITY_BINS), np.float32),
            np.zeros(hosts, np.int32),
            np.zeros(hosts, np.int32),
            np.zeros(_SMALLEST, np.uint16),
            np.zeros(_SMALLEST, np.float32),
        )
        self._used = 0

    def grow(self, hosts: int) -> None:
        """Make room for hosts."""
        tables = self.tables
        self.tables = tables._replace(
            activity=grown(tables.activity, hosts),
            begins=grown(tables.begins, hosts),
            counts=grown(tables.counts, hosts),
        )

    def clear(self, hosts: slice) -> None:
        """Nothing is known of hosts."""
        self.tables.activity[hosts] = 1.0
        self.tables.counts[hosts] = 0

    def set(
        self,
        host: int,
        activity: Sequence[float] | NDArray[np.float64],
        directories: Sequence[int] | NDArray[np.uint16],
        factors: Sequence[float] | NDArray[np.float64],
    ) -> None:
        """Take what was learned of a host. Of fewer numbers than factors, or the other way round,
        those without a partner are left out."""
        count = min(len(directories), len(factors))
        self.tables.counts[host] = 0
        self._reserve(count)
        tables, begin, end = self.tables, self._used, self._used + count
        tables.activity[host] = activity
        if not count:
            return  # as of most hosts
        numbers = np.asarray(directories[:count], np.uint16)
        order = np.argsort(numbers, kind="stable")
        tables.begins[host], tables.counts[host] = begin, count
        tables.directories[begin:end] = numbers[order]
        tables.factors[begin:end] = np.asarray(factors[:count], np.float32)[order]
        self._used = end

    def _reserve(self, count: int) -> None:
        tables = self.tables
        if self._used + count <= tables.directories.size:
            return
        rows = np.flatnonzero(tables.counts)
        kept = int(tables.counts[rows].sum())
        size = max(_SMALLEST, 2 * (kept + count))
        directories, factors = np.zeros(size, np.uint16), np.zeros(size, np.float32)
        end = 0
        for row in rows.tolist():
            begin, own = int(tables.begins[row]), int(tables.counts[row])
            directories[end : end + own] = tables.directories[begin : begin + own]
            factors[end : end + own] = tables.factors[begin : begin + own]
            tables.begins[row] = end
            end += own
        self.tables = FactorTables(*tables[:3], directories, factors)
        self._used = end


@compiled
def factor_of(record: Any, host: int, tables: FactorTables) -> float:
    """What a page's directory and its signals say of its rate."""
    factor: float = tables.activity[host, record.activity]
    begin = tables.begins[host]
    low, high = begin, begin + tables.counts[host]
    while low < high:
        middle = (low + high) // 2
        if tables.directories[middle] < record.directory:
            low = middle + 1
        else:
            high = middle
    if low < begin + tables.counts[host] and tables.directories[low] == record.directory:
        factor *= tables.factors[low]
    return factor
