"""The hosts of a shard: limits, and what is learned of their pages in common."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from services.estimator.columns import HostTables
from shared.contracts.identity import host_id_of
from shared.policy.estimation.bursts import AGE_BINS
from shared.policy.estimation.host_priors import HostPriors, initial_host_priors
from shared.policy.estimation.page_factors import ACTIVITY_BINS, activity_bins
from shared.policy.estimation.quiet_pages import (
    QuietPages,
    believed_mean,
    believed_multipliers,
)
from shared.rules.host_rules import HostRules
from shared.store.columns import HOST_RULES, HostColumns
from shared.store.directories import DIRECTORIES
from shared.store.history import OWN_SOURCES, SOURCES
from shared.store.host_factors import NO_FACTORS, HostFactors
from shared.store.hosts import HostLearning
from shared.store.page_parts import DamagedStore
from shared.store.page_status import NEVER

HOST: Final = np.dtype(
    [
        ("host_id", np.int64),
        *HOST_RULES.descr,
        ("limit_updated_at", np.float64),
        ("prior_shape", np.float64),
        ("prior_rate", np.float64),
        ("quiet_found", np.float64),
        ("quiet_predicted", np.float64),
        ("quiet_belief", np.float64),
    ],
    align=True,
)
"""A host's record: its rules, its Gamma(A, B) prior of α, and E, X and Q of its quiet pages
(`shared.policy.estimation.quiet_pages`)."""

ANNOUNCED: Final = 2 + SOURCES + AGE_BINS
"""Figures that are announced of a host: prior mean of α, κ̄, κ by source, burst multipliers. The
mean and the first multiplier are times the belief in quiet pages. Factors of pages are announced
beside."""


_QUIET: Final = ("quiet_found", "quiet_predicted", "quiet_belief")
"""Fields of `HOST`, in the order of `QuietPages`."""


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array with room for at least `size` rows."""
    if size <= len(array):
        return array
    larger = np.zeros((max(size, len(array) + len(array) // 4, 16), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def quiet_of(records: NDArray[Any]) -> QuietPages:
    """What crawls of quiet pages came to, of hosts' records."""
    return QuietPages(*(records[name] for name in _QUIET))


class Hosts:
    """The hosts of a shard; rows are never removed."""

    def __init__(self) -> None:
        self.records: NDArray[Any] = np.zeros(0, HOST)
        """Of type `HOST`; there may be rows to spare at the end, as in `learning`."""
        self.names: list[str] = []
        self.sources: list[list[str]] = []
        """By host: the sources that have a slot of their own."""
        self.learning = HostLearning.initial(0)
        self.newcomer = initial_host_priors(1, SOURCES)
        """Prior of a host of which nothing is known."""
        self.announced: NDArray[np.float64] = np.zeros((0, ANNOUNCED))
        """What the schedulers know of each host (`figures`)."""
        self.announced_factors: dict[int, HostFactors] = {}
        """As the schedulers know them."""
        self.factors: dict[int, HostFactors] = {}
        """By row: what directories and signals of pages say, of hosts of which that is known."""
        self._activity: NDArray[np.float64] = np.ones((0, ACTIVITY_BINS))
        self._directories: NDArray[np.int64] = np.empty(0, np.int64)
        """Hosts and their directories in one number each, rising; and the factors of those."""
        self._of_directories: NDArray[np.float64] = np.empty(0)
        self._rows: dict[str, int] = {}
        self._loaded: NDArray[np.int64] = np.empty(0, np.int64)
        """Ids of the hosts that were loaded, rising."""
        self._newer: set[int] = set()
        """Those of all others."""
        self._by_id: NDArray[np.int64] = np.empty(0, np.int64)
        """Rows in rising order of hosts' ids, as far as that was asked for."""
        self._slots: dict[tuple[int, str], int] = {}
        unknown = initial_host_priors(1, SOURCES), HostLearning.initial(1)
        self._unknown = _figures(*unknown, np.ones(1))[0]

    @classmethod
    def load(cls, columns: HostColumns) -> Self:
        """The hosts as the database has them."""
        hosts = cls()
        count = len(columns.names)
        # As a whole, not by `row_or_new`: there may be a million.
        hosts.names = list(columns.names)
        hosts._rows = {name: row for row, name in enumerate(hosts.names)}
        hosts.records = np.zeros(count, HOST)
        hosts.records["host_id"] = columns.host_ids
        hosts._loaded = np.sort(columns.host_ids)
        for name in HOST_RULES.names or ():
            hosts.records[name] = columns.rules[name]
        for name in ("limit_updated_at", "prior_shape", "prior_rate"):
            hosts.records[name] = getattr(columns, name)
        hosts._set_quiet(slice(None), columns.quiet.remembered())
        hosts.learning = HostLearning(*(stored.copy() for stored in columns.learning))
        hosts.sources = [list(names) for names in columns.sources]
        for row, names in enumerate(hosts.sources):
            if names:
                hosts._slots |= {(row, source): slot for slot, source in enumerate(names)}
        hosts._activity = np.ones((count, ACTIVITY_BINS))
        hosts.announced = hosts.figures(np.arange(count))
        known = {
            row: of
            for row, of in enumerate(columns.factors)
            if of is not NO_FACTORS and of.is_known
        }
        hosts.set_factors(known)
        hosts.announced_factors = dict(known)
        return hosts

    def take_newcomer(self, others: "Iterable[Hosts]") -> None:
        """Take the prior of hosts of which nothing is known, which no database has, of shards whose
        hosts are there for longer; without any, it is the initial one until the next refit."""
        self.newcomer = next(iter(others), self).newcomer

    def frozen(self) -> Self:
        """A copy for a refit, which no event reaches: of priors, factors, and what signals say."""
        count = len(self.names)
        # What is not copied is not changed in place, but replaced; or nobody looks at it.
        copied = copy.copy(self)
        copied.names = self.names[:count]
        copied.records = self.records[:count].copy()
        copied.learning = self.learning.take(np.arange(count))
        copied.factors = dict(self.factors)
        copied.__dict__["_activity"] = self._activity[:count].copy()
        return copied

    def row(self, name: str) -> int | None:
        """The row of a known host."""
        return self._rows.get(name)

    def has_twin(self, name: str) -> bool:
        """Whether a host, which is not there, has the id of another one that is."""
        if name in self._rows:
            return False
        host_id = host_id_of(name)
        place = int(np.searchsorted(self._loaded, host_id))
        is_loaded = place < self._loaded.size and int(self._loaded[place]) == host_id
        return is_loaded or host_id in self._newer

    def knows(self, host_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which hosts are there, by their ids."""
        return np.isin(host_ids, self.records["host_id"][: len(self.names)])

    def rows_of(self, host_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of known hosts, by their ids.

        Raises:
            DamagedStore: one is not there: its pages would be another's.
        """
        if self._by_id.size != len(self.names):
            # As they were loaded, their ids rise; few come later.
            self._by_id = np.argsort(self.records["host_id"][: len(self.names)], kind="stable")
        known = self.records["host_id"][self._by_id]
        places = np.minimum(np.searchsorted(known, host_ids), known.size - 1)
        missing = host_ids[known[places] != host_ids] if known.size else host_ids
        if missing.size:
            raise DamagedStore(f"pages are of the host {missing[0]}, which is not in `hosts`")
        return self._by_id[places]

    def row_or_new(self, name: str) -> int:
        """The row of a host, which is added where it is new."""
        row = self._rows.get(name)
        if row is not None:
            return row
        row = self._rows[name] = len(self.names)
        self.names.append(name)
        self.sources.append([])
        self.records = grown(self.records, row + 1)
        self.learning = HostLearning(*(grown(column, row + 1) for column in self.learning))
        self.announced = grown(self.announced, row + 1)
        prior = self.newcomer
        record = self.records[row]
        record["host_id"] = host_id_of(name)
        self._newer.add(host_id_of(name))
        HostRules().write(record)
        record["limit_updated_at"] = record["named_since"] = NEVER
        record["prior_shape"], record["prior_rate"] = prior.shape[0], prior.rate[0]
        self._set_quiet(slice(row, row + 1), QuietPages.initial(1))
        for mine, initial in zip(self.learning, HostLearning.initial(1), strict=True):
            mine[row] = initial[0]
        self.learning.precision[row] = prior.precision[0]
        self.announced[row] = self._unknown
        self._activity = grown(self._activity, row + 1)
        self._activity[row] = 1.0
        return row

    def set_factors(self, factors: Mapping[int, HostFactors]) -> None:
        """Change the factors of some hosts, by row."""
        if not factors:
            return
        self.factors |= factors
        for row, of_host in factors.items():
            self._activity[row] = of_host.activity
        rows = sorted(self.factors)
        parts = [self.factors[row] for row in rows]
        self._directories = np.concatenate(
            [
                row * DIRECTORIES + of.directories.astype(np.int64)
                for row, of in zip(rows, parts, strict=True)
            ]
        )
        self._of_directories = np.concatenate([of.factors for of in parts])

    def factors_of(self, pages: NDArray[Any]) -> NDArray[np.float64]:
        """What directories and signals of pages, records of type `PAGE`, say of their rates."""
        bins = activity_bins(np.ascontiguousarray(pages["signal_count"]))
        factors: NDArray[np.float64] = self._activity[pages["host"], bins]
        if self._directories.size:
            keys = pages["host"] * DIRECTORIES + pages["directory"]
            places = np.searchsorted(self._directories, keys)
            places = np.minimum(places, self._directories.size - 1)
            known = self._directories[places] == keys
            factors[known] *= self._of_directories[places[known]]
        return factors

    def priors_of(self, pages: NDArray[Any]) -> HostPriors:
        """Priors of pages, records of type `PAGE`: a row a page."""
        hosts = pages["host"]
        records = self.records[hosts]
        return HostPriors(
            records["prior_shape"].copy(),
            records["prior_rate"] / pages["factor"],
            self.learning.precision[hosts],
        )

    def slots(
        self, rows: NDArray[np.int64], sources: Sequence[str]
    ) -> tuple[NDArray[np.int8], set[int]]:
        """The slots of signals' sources at their hosts.

        Args:
            rows: of the hosts; −1 where the page is unknown, whose source gets no slot.
            sources: their names.

        Returns:
            the slots, and the rows of the hosts at which a source has got one.
        """
        slots = np.zeros(len(sources), np.int8)
        new = set()
        for event, (row, source) in enumerate(zip(rows.tolist(), sources, strict=True)):
            if row < 0:
                continue
            slot = self._slots.get((row, source))
            if slot is None:
                names = self.sources[row]
                slot = len(names)
                if slot < OWN_SOURCES:
                    names.append(source)
                    self._slots[row, source] = slot
                    new.add(row)
            slots[event] = slot
        return slots, new

    @property
    def priors(self) -> HostPriors:
        """A copy of the priors, as the fits take them."""
        records = self.records[: len(self.names)]
        return HostPriors(
            records["prior_shape"].copy(),
            records["prior_rate"].copy(),
            self.learning.precision[: len(self.names)].copy(),
        )

    def _set_quiet(self, rows: slice, quiet: QuietPages) -> None:
        for name, column in zip(_QUIET, quiet, strict=True):
            self.records[name][rows] = column

    @property
    def tables(self) -> HostTables:
        """What crawls and signals are counted in; the tables write through."""
        # Not copied: a batch is about few of the hosts.
        return HostTables(self.records, *self.learning, self._activity)

    def figures(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """What is announced of hosts; shape (rows, `ANNOUNCED`)."""
        records, learning = self.records[rows], self.learning.take(rows)
        priors = HostPriors(records["prior_shape"], records["prior_rate"], learning.precision)
        return _figures(priors, learning, records["quiet_belief"])


def _figures(
    priors: HostPriors, learning: HostLearning, belief: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.column_stack(
        [
            believed_mean(priors.shape, priors.rate, belief),
            learning.evidence,
            learning.source_evidence,
            believed_multipliers(learning.multipliers, belief),
        ]
    )
