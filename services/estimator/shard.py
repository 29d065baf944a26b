"""One shard in memory: the columns of its pages and hosts, a cache of what Postgres holds."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.estimator.index import PageIndex
from shared.contracts.identity import PageIdentity, host_id_of
from shared.store.history import Rings
from shared.store.imports import DEFAULT_CHANGE_RATE, DEFAULT_SIGNAL_EVIDENCE
from shared.store.models import ACTIVE, NEVER
from shared.store.snapshot import LearningSnapshot

PAGE: Final = np.dtype(
    [
        ("page_id", np.int64),
        ("host", np.int64),
        ("importance", np.float64),
        ("max_age_days", np.float64),
        ("unsignalled_change_rate", np.float64),
        ("signal_evidence", np.float64),
        ("signal_rate", np.float64),
        ("first_seen_at", np.float64),
        ("last_crawled_at", np.float64),
        ("last_attempt_at", np.float64),
        ("last_changed_at", np.float64),
        ("last_signal_at", np.float64),
        ("updated_at", np.float64),
        ("digest", np.int64),
        ("signal_count", np.int64),
        ("signals", np.int32),
        ("crawls", np.int32),
        ("changes", np.int32),
        ("failures", np.int32),
        ("announced_change_rate", np.float64),
        ("announced_evidence", np.float64),
        ("announced_signal_rate", np.float64),
        ("status", np.int16),
        ("fitted", np.int8),
    ],
    align=True,
)
"""A page's record: the fields of the table `pages`, `host` a row of the shard's hosts, and the
parameters (α, κ, γ) that the schedulers know (NaN: none); `fitted`: α was learned from the page's
own crawls, and counts in its host's."""

HOST: Final = np.dtype(
    [
        ("host_id", np.int64),
        ("max_crawls_per_second", np.float64),
        ("blocked_until", np.float64),
        ("limit_updated_at", np.float64),
        ("rate_sum", np.float64),
        ("rate_pages", np.int64),
    ],
    align=True,
)
"""A host's record; `rate_sum` is Σα over its `rate_pages` pages that have crawl records."""

PRIOR_PAGES: Final = 1.0
"""Weight of the default change rate beside the host's own pages."""

_FROM_PAGES: Final = tuple(
    name
    for name in PAGE.names or ()
    if not name.startswith("announced") and name not in ("page_id", "host", "fitted")
)
_FROM_LEARNING: Final = frozenset(
    {"last_changed_at", "digest", "signal_count", "crawls", "changes", "status"}
)


_TIMES_NEVER: Final = (
    "last_crawled_at",
    "last_attempt_at",
    "last_changed_at",
    "last_signal_at",
    "updated_at",
)
"""Times that have not come for a new page."""


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array with room for at least `size` rows."""
    if size <= len(array):
        return array
    grown = np.zeros((max(size, len(array) + len(array) // 4, 16), *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


@dataclass(slots=True)
class Hosts:
    """The hosts of a shard; rows are never removed."""

    records: NDArray[Any] = field(default_factory=lambda: np.zeros(0, HOST))
    names: list[str] = field(default_factory=list)
    _rows: dict[str, int] = field(default_factory=dict)

    def row(self, name: str) -> int | None:
        """The row of a known host."""
        return self._rows.get(name)

    def row_or_new(self, name: str) -> int:
        """The row of a host, which is added where it is new."""
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = len(self.names)
            self.names.append(name)
            self.records = _grown(self.records, row + 1)
            self.records[row] = (host_id_of(name), np.nan, NEVER, NEVER, 0.0, 0)
        return row

    def usual_change_rate(self, row: int) -> float:
        """What α of a page of this host is expected to be, per day, before its first crawls."""
        host = self.records[row]
        known = host["rate_sum"] + PRIOR_PAGES * DEFAULT_CHANGE_RATE
        return float(known / (host["rate_pages"] + PRIOR_PAGES))


class Shard:
    """The pages and hosts of one shard."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.hosts = Hosts()
        self.index = PageIndex(np.empty(0, np.int64))
        self._pages = np.zeros(0, PAGE)
        self._rings = Rings.empty(0)
        self._size = 0

    @property
    def pages(self) -> NDArray[Any]:
        """Records of the pages, of type `PAGE`; a view that writes through."""
        return self._pages[: self._size]

    @property
    def rings(self) -> Rings:
        """The pages' last crawl records; arrays may have rows to spare at the end."""
        return self._rings

    @classmethod
    def load(cls, snapshot: LearningSnapshot) -> "Shard":
        """The shard as the database has it."""
        shard = cls(snapshot.shard)
        for name in snapshot.hosts.names:
            shard.hosts.row_or_new(name)
        hosts = shard.hosts.records[: len(snapshot.hosts.names)]
        for name in ("max_crawls_per_second", "blocked_until", "limit_updated_at"):
            hosts[name] = getattr(snapshot.hosts, name)
        page_ids = snapshot.pages.page_ids
        pages = np.zeros(page_ids.size, PAGE)
        pages["page_id"] = page_ids
        for name in _FROM_PAGES:
            source = snapshot.learning if name in _FROM_LEARNING else snapshot.pages
            pages[name] = getattr(source, name)
        pages["host"] = np.searchsorted(snapshot.hosts.host_ids, snapshot.pages.host_ids)
        pages["announced_change_rate"] = pages["unsignalled_change_rate"]
        pages["announced_evidence"] = pages["signal_evidence"]
        pages["announced_signal_rate"] = pages["signal_rate"]
        shard._pages, shard._rings, shard._size = pages, snapshot.histories, page_ids.size
        shard.index = PageIndex(page_ids)
        fitted = snapshot.histories.seen > 0
        pages["fitted"] = fitted
        rows, rates = pages["host"][fitted], pages["unsignalled_change_rate"][fitted]
        hosts["rate_sum"] = np.bincount(rows, rates, len(hosts))
        hosts["rate_pages"] = np.bincount(rows, minlength=len(hosts))
        return shard

    def add_pages(self, new: list[tuple[PageIdentity, float]]) -> NDArray[np.int64]:
        """Add pages that are not there yet, with what is usual for their hosts.

        Args:
            new: different pages, each with the time at which it was first seen.

        Returns:
            their rows.
        """
        begin, end = self._size, self._size + len(new)
        self._pages = _grown(self._pages, end)
        self._rings = Rings(*(_grown(column, end) for column in self._rings))
        pages = self._pages[begin:end]
        hosts = [self.hosts.row_or_new(page.host) for page, _ in new]
        pages["page_id"] = [page.page_id for page, _ in new]
        pages["host"] = hosts
        pages["importance"] = 1.0
        pages["max_age_days"] = np.inf
        pages["unsignalled_change_rate"] = [self.hosts.usual_change_rate(row) for row in hosts]
        pages["signal_evidence"] = DEFAULT_SIGNAL_EVIDENCE
        pages["first_seen_at"] = [seen_at for _, seen_at in new]
        for name in _TIMES_NEVER:
            pages[name] = NEVER
        for name in ("change_rate", "evidence", "signal_rate"):
            pages[f"announced_{name}"] = np.nan
        pages["status"] = ACTIVE
        rows = np.arange(begin, end, dtype=np.int64)
        self._size = end
        self.index.add(pages["page_id"].copy(), rows)
        return rows
