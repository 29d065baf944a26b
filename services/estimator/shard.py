"""One shard in memory: the columns of its hosts and of some pages, a cache of what Postgres holds.

A shard is *whole* if all of its pages are here: as many as there is room for are loaded with their
shard. Of others, pages are read when they are named first, and stay until there is no room
(`services.estimator.residence`). What a batch has changed is never read before it is committed: its
pages are here until then.
"""

import time
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from services.estimator.hosts import Hosts, grown
from services.estimator.naming import Named
from shared.contracts.identity import PageIdentity
from shared.contracts.layout import ALONE, Layout
from shared.policy.estimation.page_factors import activity_bins
from shared.store.class_numbers import PageClasses
from shared.store.directories import directory_of
from shared.store.history import Rings
from shared.store.learned_pages import LearnedPages
from shared.store.owners import NO_OWNER
from shared.store.page_lookup import UNKNOWN, PageLookup
from shared.store.page_status import ACTIVE, NEVER
from shared.store.removals import Removals
from shared.store.snapshot import LearningSnapshot
from shared.store.source_times import NO_ENTRY, SourceTimes

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
        ("is_read", np.bool_),
    ],
    align=True,
)
"""A page's record: the fields of the table `pages`, `host` a row of the shard's hosts, and the
parameters (α, κ̄, γ) that the schedulers know. α and κ̄ are NaN as long as the page has no crawl
record: what its host says of its pages holds then, times `factor`, which its `directory`
(`shared.store.directories`) and its signals say. `several` is the page's entry in
`Shard.by_source`; 0: none. Of a page that was read, what the schedulers know is known but about: it
is what is stored, which was near enough then (`learning.material_pages`)."""

_FROM_PAGES: Final = tuple(
    name
    for name in PAGE.names or ()
    if not name.startswith("announced")
    and name not in ("page_id", "host", "several", "factor", "directory", "is_read")
)
_FROM_LEARNING: Final = frozenset({"first_seen_at", "signals", "crawls", "changes"})


ANNOUNCED: Final = {
    "unsignalled_change_rate": "announced_change_rate",
    "signal_evidence": "announced_evidence",
    "signal_rate": "announced_signal_rate",
}
"""Parameters of a page, and what the schedulers know of them."""


_TIMES_NEVER: Final = (
    "last_crawled_at",
    "last_attempt_at",
    "last_changed_at",
    "last_signal_at",
    "updated_at",
    "urgent_at",
)
"""Times that have not come for a new page."""


READ_AT_ONCE: Final = 100_000
"""Pages, of a host that has more: what PostgreSQL answers has to stay below a gigabyte."""


_MOST_ABSENT: Final = 100_000
"""Ids of pages that are known not to be there; beyond, all are forgotten."""


class Found(NamedTuple):
    """What was read."""

    asked: NDArray[np.int64]
    """Ids of pages, some of which may not be there."""
    pages: LearnedPages


class PageSource(Protocol):
    """Where the pages of a shard are read that are not in memory."""

    def read_pages(
        self,
        shard: int,
        epoch: int,
        page_ids: NDArray[np.int64],
        directories: NDArray[np.uint16] | None = None,
    ) -> LearnedPages:
        """Those of some pages that are there (`shared.store.learned_pages.read_pages`)."""
        ...

    def pages_of_host(self, shard: int, epoch: int, host_id: int) -> NDArray[np.int64]:
        """Ids of all pages of a host."""
        ...


class Shard:
    """The hosts of one shard, and its pages or some of them."""

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
        """Pages that were erased, and hosts; removed pages are pages."""
        self.is_whole = True
        """Whether a page that is not here is not in the database either."""
        self.read_count = 0
        """Pages read since the shard was loaded."""
        self._source: PageSource | None = None
        self._absent: set[int] = set()
        self._used: NDArray[np.float64] = np.zeros(0)
        """By row: when the page was named last, `time.monotonic`."""
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

    @property
    def used(self) -> NDArray[np.float64]:
        """When each page was named last."""
        return self._used[: self._size]

    @classmethod
    def load(cls, snapshot: LearningSnapshot, source: PageSource | None = None) -> "Shard":
        """The shard as the database has it.

        Args:
            snapshot: of it.
            source: where its other pages are, if those of the snapshot are not all.
        """
        shard = cls(snapshot.shard, snapshot.layout)
        shard.hosts = Hosts.load(snapshot.hosts)
        shard.removals.load(snapshot.erased.pages, snapshot.erased.hosts)
        shard.records = snapshot.records
        shard.is_whole, shard._source = snapshot.is_whole, source
        shard.take_in(snapshot)
        shard.classes = PageClasses(snapshot.classes, snapshot.unused_classes)
        return shard

    def take_in(self, found: LearnedPages) -> None:
        """Take pages that are not here yet, as the database has them."""
        count = found.pages.page_ids.size
        begin, end = self._size, self._size + count
        new = self._records_of(found)
        if begin:
            self._make_room(end)
            self._pages[begin:end] = new
            both: Any = zip(self._rings, found.histories, strict=True)
            for mine, theirs in both:
                mine[begin:end] = theirs
        else:  # nothing is kept twice: a shard may fill half of the memory
            self._pages, self._rings, self._used = new, found.histories, np.zeros(count)
        self._used[begin:end] = time.monotonic()
        self._size = end
        self._look_up(found.pages.page_ids, np.arange(begin, end))

    def _records_of(self, found: LearnedPages) -> NDArray[Any]:
        """Records of pages, with entries in `by_source`."""
        pages = np.zeros(found.pages.page_ids.size, PAGE)
        pages["page_id"] = found.pages.page_ids
        for name in _FROM_PAGES:
            source = found.learning if name in _FROM_LEARNING else found.pages
            pages[name] = getattr(source, name)
        pages["host"] = self.hosts.rows_of(found.pages.host_ids)
        pages["several"][found.by_source.rows] = self.by_source.add(found.by_source.ages)
        # What is learned of a page that is away is not announced before it is back.
        is_known = pages["status"] == ACTIVE
        for learned, announced in ANNOUNCED.items():
            pages[announced] = np.where(is_known, pages[learned], np.nan)
        pages["directory"] = found.directories
        pages["announced_activity"] = activity_bins(np.ascontiguousarray(pages["signal_count"]))
        pages["factor"] = self.hosts.factors_of(pages)
        pages["is_read"] = True
        return pages

    def _make_room(self, size: int) -> None:
        self._pages = grown(self._pages, size)
        self._rings = Rings(*(grown(column, size) for column in self._rings))
        self._used = grown(self._used, size)

    def add_pages(self, new: list[tuple[PageIdentity, float]]) -> NDArray[np.int64]:
        """Add pages that are not there yet; what their hosts say of them holds.

        Args:
            new: different pages, each with the time at which it was first seen.

        Returns:
            their rows.
        """
        begin, end = self._size, self._size + len(new)
        self._make_room(end)
        self._rings.multiplier[begin:end] = 1.0
        self._used[begin:end] = time.monotonic()
        self._absent.difference_update(page.page_id for page, _ in new)
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
        for page_id, at in zip(self._pages["page_id"][rows].tolist(), times, strict=True):
            self.removals.note(page_id, at)
            row, last = self._lookup.find(page_id), self._size - 1
            last_id = int(self._pages["page_id"][last])
            self._lookup.remove(page_id)
            for column in (self._pages, *self._rings, self._used):
                column[row] = column[last]
                column[last] = 0
            if row != last:
                self._lookup.remove(last_id)
                self._lookup.add(last_id, row)
            self._size = last

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Let all other pages go, none of which differs from what the database has.

        Args:
            rows: of pages that stay, rising; those behind take the places of those that go.
        """
        kept, before = rows.size, np.searchsorted(rows, rows.size)
        holes = np.setdiff1d(np.arange(kept), rows[:before], assume_unique=True)
        for column in (self._pages, *self._rings, self._used):
            column[holes] = column[rows[before:]]
            column[kept : self._size] = 0  # as rows are that nobody has had
        self._size = kept
        several = np.flatnonzero(self.pages["several"] != NO_ENTRY)
        ages = self.by_source.ages[self.pages["several"][several]]
        self.by_source = SourceTimes()
        self.pages["several"][several] = self.by_source.add(ages)
        self._lookup = PageLookup()
        self._look_up(self.pages["page_id"].copy(), np.arange(kept))
        self.is_whole = False

    def rows_of(self, page_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of pages, `UNKNOWN` for those that are not there; others are read.

        Raises:
            Superseded: others are to be read, and the shard is another owner's by now.
            psycopg.OperationalError: the server went away.
        """
        rows = self._lookup.find_many(page_ids).astype(np.int64)
        if not self.is_whole and self._read(page_ids[rows == UNKNOWN]):
            rows = self._lookup.find_many(page_ids).astype(np.int64)
        self._used[rows[rows != UNKNOWN]] = time.monotonic()
        return rows

    def read_host(self, host: int) -> None:
        """Have all pages of a host here, by its row; looks through all pages of the shard."""
        if not self.is_whole and self._source is not None:
            host_id = int(self.hosts.records["host_id"][host])
            self.rows_of(self._source.pages_of_host(self.number, self.epoch, host_id))

    def read(self, named: Named) -> Found | None:
        """Read those of some pages that are not here, for `take_read`; None: there are none.

        Nothing is changed, so it may be done beside what other shards do.

        Raises:
            Superseded: the shard is another owner's by now.
            psycopg.OperationalError: the server went away.
        """
        if self.is_whole or self._source is None:
            return None
        missing = named.chosen(self._lookup.find_many(named.page_ids) == UNKNOWN)
        if self._absent:
            known = [page_id not in self._absent for page_id in missing.page_ids.tolist()]
            missing = missing.chosen(np.array(known, np.bool_))
        if not missing.page_ids.size:
            return None
        pages = self._source.read_pages(self.number, self.epoch, *missing)
        return Found(missing.page_ids, pages)

    def take_read(self, found: Found) -> None:
        """Take pages that were read; of those that were asked for, the others are not there."""
        if len(self._absent) > _MOST_ABSENT:
            self._absent.clear()
        page_ids = found.pages.pages.page_ids
        self._absent |= set(np.setdiff1d(found.asked, page_ids).tolist())
        self.take_in(found.pages)
        self.read_count += page_ids.size

    def _read(self, page_ids: NDArray[np.int64]) -> bool:
        """Read pages that are not here; whether there are any."""
        missing = np.unique(page_ids)
        if self._absent:
            missing = missing[[page_id not in self._absent for page_id in missing.tolist()]]
        if self._source is None:
            return False
        before = self.read_count
        for begin in range(0, missing.size, READ_AT_ONCE):
            part = missing[begin : begin + READ_AT_ONCE]
            pages = self._source.read_pages(self.number, self.epoch, part)
            self.take_read(Found(part, pages))
        return self.read_count > before

    def _look_up(self, page_ids: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        self._lookup.add_many(page_ids, rows.astype(np.int32))
