"""One shard in memory: the columns of its pages and hosts, a cache of what Postgres holds."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.estimator.hosts import Hosts, grown
from shared.contracts.identity import PageIdentity
from shared.contracts.layout import ALONE, Layout
from shared.policy.estimation.page_factors import activity_bins
from shared.store.class_numbers import PageClasses
from shared.store.directories import directories_of, directory_of
from shared.store.history import Rings
from shared.store.owners import NO_OWNER
from shared.store.page_lookup import PageLookup
from shared.store.page_status import ACTIVE, NEVER
from shared.store.removals import Removals
from shared.store.snapshot import LearningSnapshot
from shared.store.source_times import SourceTimes

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
        ("urgent_at", np.float64),
        ("digest", np.int64),
        ("signal_count", np.int64),
        ("signals", np.int32),
        ("crawls", np.int32),
        ("changes", np.int32),
        ("failures", np.int32),
        ("announced_change_rate", np.float64),
        ("announced_evidence", np.float64),
        ("announced_signal_rate", np.float64),
        ("factor", np.float64),
        ("several", np.int32),
        ("misses", np.int16),
        ("status", np.int16),
        ("page_class", np.int16),
        ("directory", np.uint16),
        ("announced_activity", np.uint8),
    ],
    align=True,
)
"""A page's record: the fields of the table `pages`, `host` a row of the shard's hosts, and the
parameters (α, κ̄, γ) that the schedulers know. α and κ̄ are NaN as long as the page has no crawl
record: what its host says of its pages holds then, times `factor`, which its `directory`
(`shared.store.directories`) and its signals say. `several` is the page's entry in
`Shard.by_source`; 0: none."""

_FROM_PAGES: Final = tuple(
    name
    for name in PAGE.names or ()
    if not name.startswith("announced")
    and name not in ("page_id", "host", "several", "factor", "directory")
)
_FROM_LEARNING: Final = frozenset({"first_seen_at", "signals", "crawls", "changes"})


_TIMES_NEVER: Final = (
    "last_crawled_at",
    "last_attempt_at",
    "last_changed_at",
    "last_signal_at",
    "updated_at",
    "urgent_at",
)
"""Times that have not come for a new page."""


class Shard:
    """The pages and hosts of one shard."""

    def __init__(self, number: int, layout: Layout = ALONE) -> None:
        self.number = number
        self.layout = layout
        """How the hosts are shared out, for as long as the shard is ours: whoever splits it takes
        it from us."""
        self.epoch = NO_OWNER
        """Of our ownership (`shared.store.owners`)."""
        self.hosts = Hosts()
        self._lookup = PageLookup()
        self._pages = np.zeros(0, PAGE)
        self._rings = Rings.empty(0)
        self.by_source = SourceTimes()
        """When each source sent its last signal, of pages with several."""
        self.classes = PageClasses()
        self.removals = Removals()
        """Pages that were erased, and hosts: removed pages are here."""
        self._size = 0
        self.records = 0
        """Crawl records taken in, those before loading as far as they were kept."""

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
        shard = cls(snapshot.shard, snapshot.layout)
        shard.hosts = Hosts.load(snapshot.hosts)
        page_ids = snapshot.pages.page_ids
        pages = np.zeros(page_ids.size, PAGE)
        pages["page_id"] = page_ids
        for name in _FROM_PAGES:
            source = snapshot.learning if name in _FROM_LEARNING else snapshot.pages
            pages[name] = getattr(source, name)
        pages["host"] = np.searchsorted(snapshot.hosts.host_ids, snapshot.pages.host_ids)
        pages["several"][snapshot.by_source.rows] = shard.by_source.add(snapshot.by_source.ages)
        pages["announced_change_rate"] = pages["unsignalled_change_rate"]
        pages["announced_evidence"] = pages["signal_evidence"]
        pages["announced_signal_rate"] = pages["signal_rate"]
        pages["directory"] = directories_of(snapshot.urls.arena, snapshot.urls.offsets)
        pages["announced_activity"] = activity_bins(np.ascontiguousarray(pages["signal_count"]))
        pages["factor"] = shard.hosts.factors_of(pages)
        shard._pages, shard._rings, shard._size = pages, snapshot.histories, page_ids.size
        shard._look_up(page_ids, np.arange(page_ids.size))
        shard.records = int(snapshot.histories.seen.sum())
        shard.removals.load(snapshot.erased.pages, snapshot.erased.hosts)
        # The numbers of those of which there is no page are free again.
        used = np.flatnonzero(np.bincount(pages["page_class"], minlength=1)).tolist()
        known = snapshot.classes
        shard.classes = PageClasses({n: known[n] for n in used if n in known})
        return shard

    def add_pages(self, new: list[tuple[PageIdentity, float]]) -> NDArray[np.int64]:
        """Add pages that are not there yet; what their hosts say of them holds.

        Args:
            new: different pages, each with the time at which it was first seen.

        Returns:
            their rows.
        """
        begin, end = self._size, self._size + len(new)
        self._pages = grown(self._pages, end)
        self._rings = Rings(*(grown(column, end) for column in self._rings))
        self._rings.multiplier[begin:end] = 1.0
        pages = self._pages[begin:end]
        hosts = [self.hosts.row_or_new(page.host) for page, _ in new]
        pages["page_id"] = [page.page_id for page, _ in new]
        pages["host"] = hosts
        pages["importance"] = 1.0
        pages["max_age_days"] = np.inf
        pages["unsignalled_change_rate"] = pages["signal_evidence"] = np.nan
        pages["first_seen_at"] = [seen_at for _, seen_at in new]
        for name in _TIMES_NEVER:
            pages[name] = NEVER
        pages["announced_change_rate"] = pages["announced_evidence"] = np.nan
        pages["status"] = ACTIVE
        pages["directory"] = [directory_of(page.url) for page, _ in new]
        pages["factor"] = self.hosts.factors_of(pages)
        rows = np.arange(begin, end, dtype=np.int64)
        self._size = end
        self._look_up(pages["page_id"].copy(), rows)
        return rows

    def forget(self, rows: NDArray[np.int64]) -> None:
        """Erase pages; the last ones take their rows."""
        times = self._pages["updated_at"][rows].tolist()
        for page_id, time in zip(self._pages["page_id"][rows].tolist(), times, strict=True):
            self.removals.note(page_id, time)
            row, last = self._lookup.find(page_id), self._size - 1
            last_id = int(self._pages["page_id"][last])
            self._lookup.remove(page_id)
            for column in (self._pages, *self._rings):
                column[row] = column[last]
                column[last] = 0
            if row != last:
                self._lookup.remove(last_id)
                self._lookup.add(last_id, row)
            self._size = last

    def rows_of(self, page_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of pages, `UNKNOWN` for those that are not there."""
        return self._lookup.find_many(page_ids).astype(np.int64)

    def _look_up(self, page_ids: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        self._lookup.add_many(page_ids, rows.astype(np.int32))
