"""What all pages of a shard would crawl under each threshold, summed up slice by slice.

The pages of hosts that may ask for more than their limit are summed host by host, so that a limit
cuts exactly and a change of it shows at once; those of all other hosts together.
"""

import math
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.demand.cutting import cut_sums
from services.scheduler.demand.grids import POINTS, grid
from services.scheduler.demand.kept_tables import rate_tables
from services.scheduler.demand.page_rates import (
    highest_value,
    raise_to_bound,
    rates_of_others,
    rates_one_by_one,
)
from services.scheduler.state.changes import Changes
from services.scheduler.state.groups import CrawlRates
from services.scheduler.state.hosts import Objectives
from services.scheduler.state.rows import ACTIVE, Rows
from services.scheduler.state.shard import Shard
from shared.policy.compiled import compiled
from shared.policy.kernels.rate_tables import (
    RateTables,
    no_tables,
    rates_by_tables,
)
from shared.units import SECONDS_PER_DAY

FEW_PAGES: Final = 2_000
"""Up to here the demand of each page is computed without tables: 25 times as dear, and of so few
pages single ones matter, of which tables are wrong by up to some percent."""

SLICE: Final = 50_000
"""Pages that are copied at once, in a millisecond or two."""

SAMPLE: Final = 5_000
"""Pages that are looked at for an estimate."""

_OLDEST_DAYS: Final = 1e4
"""Top of the grid under the uniform policy, whose values are ages."""

_MARGIN: Final = 8.0
"""Hosts are summed on their own that would ask for more with a limit so many times smaller."""

_LARGEST: Final = 1024
"""So many hosts that ask for most are in any case."""

_MOST_HOSTS: Final = 1 << 18
"""So many hosts are each summed on their own as long as nothing is known of them, 100 MB."""

_BLOCK: Final = 64
"""Pages whose rates are found before they are added: calls are dear where pages are cheap."""


class Sums(NamedTuple):
    """Where rates are added up, crawls per day."""

    thresholds: NDArray[np.float64]
    slots: NDArray[np.int32]
    """Row in `by_host` of each host; -1: it is summed with the others."""
    largest: NDArray[np.float64]
    """What each host asks for under the lowest threshold."""
    by_host: NDArray[np.float64]
    """(rows, thresholds)."""
    others: NDArray[np.float64]
    """(thresholds,)."""


class Demand(NamedTuple):
    """The long-run crawl rate that the pages of a shard ask for, crawls per day."""

    sums: Sums
    hosts: NDArray[np.int32]
    """The host of each row of `sums.by_host`."""
    highest: float
    """Highest crawl value that a page can have."""
    changes: Changes
    """Those of the shard when the sums were begun."""

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """The grid, rising."""
        return self.sums.thresholds

    def unlimited(self) -> NDArray[np.float64]:
        """Crawls per second under each threshold without host limits."""
        total = self.sums.others + self.sums.by_host.sum(axis=0)
        return np.asarray(total / SECONDS_PER_DAY)

    def limited(self, rates: CrawlRates) -> NDArray[np.float64]:
        """Crawls per second under each threshold where hosts and groups may take no more."""
        total = self.sums.others + cut_sums(
            self.sums.by_host,
            rates.hosts[self.hosts] * SECONDS_PER_DAY,
            rates.group_of[self.hosts],
            rates.named_of[self.hosts],
            rates.groups * SECONDS_PER_DAY,
        )
        return np.asarray(total / SECONDS_PER_DAY)

    def misses(self, rates: CrawlRates) -> bool:
        """Whether a host asks for more than it may take, or is of a group with a limit, and is not
        summed on its own."""
        hosts, group_of, named_of, _ = rates
        largest, slots = self.sums.largest, self.sums.slots
        is_over = rates.asked_too_much(largest / SECONDS_PER_DAY)
        return bool(_misses(largest, slots, hosts, group_of, named_of, is_over))


@compiled
def _misses(
    largest: NDArray[np.float64],
    slots: NDArray[np.int32],
    rates: NDArray[np.float64],
    group_of: NDArray[np.int32],
    named_of: NDArray[np.int32],
    is_over: NDArray[np.bool_],
) -> bool:
    """See `Demand.misses`; in one pass: a shard may have a million hosts."""
    for host in range(largest.size):
        if slots[host] >= 0 or not largest[host] > 0.0:
            continue
        if largest[host] > rates[host] * SECONDS_PER_DAY:
            return True
        if is_over[group_of[host]] or is_over[named_of[host]]:
            return True
    return False


@compiled
def add_pages(
    pages: Rows,
    sums: Sums,
    tables: RateTables,
    exact: bool,
    uniform: bool,
    most: float,
    objectives: Objectives | None,
) -> None:
    """Add what pages ask for under each threshold, each no more than `most` crawls per day."""
    thresholds, slots, largest, by_host, others = sums
    lowest = math.log(thresholds[0])
    rates = np.empty((_BLOCK, thresholds.size))
    reached = np.empty(_BLOCK, np.int64)
    for first in range(0, pages.size, _BLOCK):
        block = pages[first : first + _BLOCK]
        if uniform:
            _rates_alike(thresholds, rates)
            reached[:] = thresholds.size
        elif exact:
            rates_one_by_one(block, thresholds, rates, reached)
        else:
            rates_by_tables(tables, block, lowest, rates, reached)
        # Under the uniform policy there are none.
        rates_of_others(block, objectives, thresholds, rates, reached)
        for row in range(block.size):
            if block[row].status != ACTIVE:
                continue
            if block[row].max_age < np.inf:
                max_age = np.float64(block[row].max_age)
                reached[row] = raise_to_bound(max_age, rates[row], reached[row])
            host = block[row].host
            slot = -1
            if reached[row] > 0 and host < slots.size:
                largest[host] += min(rates[row, 0], most)
                slot = slots[host]
            if slot < 0:
                for point in range(reached[row]):
                    others[point] += min(rates[row, point], most)
            else:
                for point in range(reached[row]):
                    by_host[slot, point] += min(rates[row, point], most)


@compiled
def _rates_alike(thresholds: NDArray[np.float64], rates: NDArray[np.float64]) -> None:
    """Under the uniform policy every page asks for the same."""
    for row in range(rates.shape[0]):
        for point in range(thresholds.size):
            rates[row, point] = 1.0 / thresholds[point]


def _stop_at(floor: float, sums: Sums) -> None:
    """Thresholds below the floor of a page's value ask for no more than the floor does."""
    last = int(np.searchsorted(sums.thresholds, floor)) - 1
    if last > 0:
        sums.by_host[:, :last] = sums.by_host[:, last : last + 1]
        sums.others[:last] = sums.others[last]


class Tally:
    """One pass over the pages of a shard.

    `copy` is for the shards' thread; `add` and `finish` are for any other, one at a time, and let
    go of the interpreter. Pages that change meanwhile count as they were when they were copied.
    """

    def __init__(
        self,
        shard: Shard,
        multiplier: float,
        before: Demand | None,
        *,
        few_pages: int = FEW_PAGES,
        size: int = SLICE,
        is_sample: bool = False,
    ) -> None:
        """Begin; in the shards' thread.

        Args:
            shard: the shard.
            multiplier: λ₀, which the grid is to hold.
            before: what the last pass found; None: this is the first.
            few_pages: up to here pages are computed without tables.
            size: pages in a slice.
            is_sample: the first slice stands for all; computed without tables.
        """
        self._shard = shard
        self._multiplier = multiplier
        self._before = before
        self._changes = replace(shard.changes)
        rules = shard.rules.picking
        self._uniform, self._floor = rules.uniform, rules.least_value
        has_interval = rules.least_interval > 0.0
        self._most = SECONDS_PER_DAY / rules.least_interval if has_interval else math.inf
        self._exact = is_sample or shard.used <= few_pages
        self._hosts = shard.host_count
        told = None if rules.uniform else shard.hosts.objectives
        self._objectives = None if told is None else told.copy()
        self._rates = shard.crawl_rates().copy()
        most = min(size, shard.used) if is_sample or not self._exact else shard.used
        self._buffer = np.empty(max(most, 1), shard.pages.dtype)
        self._next_row = 0
        self._sums: Sums | None = None
        self._tracked = np.empty(0, np.int32)
        self._highest = 0.0
        self.share = 0.0
        """Part of the pages that is copied."""

    def copy(self) -> Rows | None:
        """Copy the next slice of pages, to be added before the next one; None: that was all."""
        first, used = self._next_row, self._shard.used
        count = min(used - first, self._buffer.size)
        if count <= 0:
            return None
        self._buffer[:count] = self._shard.pages[first : first + count]
        self._next_row += count
        self.share = self._next_row / used
        return self._buffer[:count]

    def add(self, rows: Rows) -> None:
        """Add what a slice of pages asks for."""
        if self._sums is None:
            self._sums = self._make_sums(rows)
        tables = no_tables() if self._exact else rate_tables()
        how = self._exact, self._uniform, self._most, self._objectives
        add_pages(rows, self._sums, tables, *how)
        self._highest = max(self._highest, float(highest_value(rows, self._objectives)))

    def finish(self) -> Demand:
        """What the pages ask for."""
        if self._sums is None:
            self._sums = self._make_sums(self._buffer[:0])
        _stop_at(self._floor, self._sums)
        return Demand(self._sums, self._tracked, self._highest, self._changes)

    def is_sound(self, demand: Demand) -> bool:
        """Whether a first pass can stand: the grid was guessed right, and no host is missed."""
        fits = np.array_equal(self._grid(demand.highest), demand.thresholds)
        return fits and not demand.misses(self._rates)

    def _grid(self, highest: float) -> NDArray[np.float64]:
        return grid(_OLDEST_DAYS if self._uniform else highest, self._multiplier)

    def _make_sums(self, rows: Rows) -> Sums:
        if self._exact or self._before is None:
            highest = float(highest_value(rows, self._objectives))
        else:
            highest = self._before.highest
        self._tracked = self._hosts_to_track(rows)
        slots = np.full(self._hosts, -1, np.int32)
        slots[self._tracked] = np.arange(self._tracked.size, dtype=np.int32)
        return Sums(
            thresholds=self._grid(highest),
            slots=slots,
            largest=np.zeros(self._hosts),
            by_host=np.zeros((self._tracked.size, POINTS)),
            others=np.zeros(POINTS),
        )

    def _hosts_to_track(self, rows: Rows) -> NDArray[np.int32]:
        if self._exact:
            # A host that came up since then has no row in what is per host here.
            present = np.unique(rows["host"])
            return present[present < self._hosts].astype(np.int32)
        if self._before is None:
            few = self._hosts <= _MOST_HOSTS
            return np.arange(self._hosts if few else 0, dtype=np.int32)
        asked = np.zeros(self._hosts)
        known = self._before.sums.largest
        asked[: known.size] = known
        rates = self._rates
        wanted = asked * _MARGIN > rates.hosts * SECONDS_PER_DAY
        wanted |= rates.is_held(asked * _MARGIN / SECONDS_PER_DAY)
        if asked.size > _LARGEST:
            least = np.partition(asked, -_LARGEST)[-_LARGEST]
            wanted |= (asked >= least) & (asked > 0.0)
        else:
            wanted[:] = True
        return np.flatnonzero(wanted).astype(np.int32)


class Estimate:
    """What the pages of a shard may ask for, going by some of them.

    Pages are loaded in the order of their ids, which are hashes: the first ones are a fair sample.
    """

    def __init__(self, shard: Shard, multiplier: float, sample: int = SAMPLE) -> None:
        """Begin; in the shards' thread.

        Args:
            shard: the shard.
            multiplier: λ₀, which the grid is to hold.
            sample: so many pages are looked at.
        """
        self._scale = max(shard.used / sample, 1.0)
        self._tally = Tally(shard, multiplier, None, size=sample, is_sample=True)
        self._rows = self._tally.copy()

    def finish(self) -> Demand:
        """The demand; some tens of milliseconds, in any other thread."""
        if self._rows is not None:
            self._tally.add(self._rows)
        demand = self._tally.finish()
        sums = demand.sums
        scaled = sums._replace(
            largest=sums.largest * self._scale,
            by_host=sums.by_host * self._scale,
            others=sums.others * self._scale,
        )
        return demand._replace(sums=scaled)


def demand_of(
    shard: Shard, multiplier: float, *, few_pages: int = FEW_PAGES, size: int = SLICE
) -> Demand:
    """The demand of a shard in one go; for tools and tests."""
    demand: Demand | None = None
    while True:
        tally = Tally(shard, multiplier, demand, few_pages=few_pages, size=size)
        while (rows := tally.copy()) is not None:
            tally.add(rows)
        is_second, demand = demand is not None, tally.finish()
        if is_second or tally.is_sound(demand):
            return demand
