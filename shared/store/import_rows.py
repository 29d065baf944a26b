"""Rows of an import on their way into the database: which can be taken, and of which pages."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shared.contracts.databases import Database, Databases
from shared.contracts.identity import host_id_of, is_private_host, not_public
from shared.contracts.layout import Layout
from shared.store.import_classes import ImportClasses, why_no_class
from shared.store.import_names import Names, Texts, name_pages
from shared.store.import_values import can_be_taken, why_not
from shared.store.twins import why_no_host

MOST_REPORTED: Final = 20
"""Refused rows that are kept with their reasons; the others are only counted."""


@dataclass(frozen=True, slots=True)
class PageBatch:
    """Rows of an import, one element a page."""

    urls: "pa.StringArray"
    """In any form that `identify` takes."""
    importance: NDArray[np.float64]
    max_age_days: NDArray[np.float64] | None
    """inf: no bound of its own; None in place of all: those of known pages stay."""
    crawled_at: NDArray[np.float64]
    """Unix seconds at which the copy already held was crawled; −inf: none."""
    classes: Sequence[str | None] | None = None
    """Of the pages, None: to have none; None in place of all: those of known pages stay."""

    @property
    def bounds(self) -> NDArray[np.float64]:
        """Maximum ages as new pages get them."""
        if self.max_age_days is None:
            return np.full(len(self.urls), np.inf)
        return self.max_age_days

    def says_as_much_as(self, other: Self) -> bool:
        """Whether both have the same columns."""
        return (self.classes is None, self.max_age_days is None) == (
            other.classes is None,
            other.max_age_days is None,
        )


@dataclass(slots=True)
class ImportReport:
    """What an import did."""

    read: int = 0
    added: int = 0
    updated: int = 0
    """Known pages whose importance and bounds were set, removed and gone ones revived."""
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    """The first few refused rows, and why."""

    def refuse(self, row: int, reason: str) -> None:
        """Count a row that cannot be taken."""
        self.refused += 1
        if len(self.reasons) < MOST_REPORTED:
            self.reasons.append(f"row {row}: {reason}")


@dataclass(frozen=True, slots=True)
class NamedBatch:
    """Rows, of which some can be taken."""

    rows: PageBatch
    names: Names
    taken: NDArray[np.int64]
    """Those that can be, rising; of one page there may be several."""
    refused: dict[int, str]
    """The others, and why."""

    def of_database(self, database: Database, databases: Databases) -> NDArray[np.int64]:
        """Those rows that can be taken whose shards a database has."""
        if not databases.are_several:
            return self.taken
        there = np.array([databases.of_host(host) == database for host in self.names.hosts])
        return self.taken[there[self.names.host[self.taken]]] if there.size else self.taken


def gathered(batches: Iterable[PageBatch], rows: int) -> Iterator[PageBatch]:
    """The same rows in batches of so many at least, but for the last one, and where some have
    classes or bounds and others say nothing of them. What comes before a fault is not lost."""
    waiting: list[PageBatch] = []
    try:
        for batch in batches:
            if waiting and not batch.says_as_much_as(waiting[0]):
                yield _together(waiting)
                waiting = []
            waiting.append(batch)
            if sum(len(one.urls) for one in waiting) >= rows:
                yield _together(waiting)
                waiting = []
    except Exception:
        if waiting:
            yield _together(waiting)
        raise
    if waiting:
        yield _together(waiting)


def _together(batches: Sequence[PageBatch]) -> PageBatch:
    if len(batches) == 1:
        return batches[0]
    classes: list[str | None] = []
    for batch in batches:
        classes += batch.classes or ()
    bounds = [batch.max_age_days for batch in batches if batch.max_age_days is not None]
    return PageBatch(
        pa.concat_arrays([batch.urls for batch in batches]),
        np.concatenate([batch.importance for batch in batches]),
        np.concatenate(bounds) if bounds else None,
        np.concatenate([batch.crawled_at for batch in batches]),
        None if batches[0].classes is None else classes,
    )


def named_batch(batch: PageBatch, now: float, *, private_hosts: bool) -> NamedBatch:
    """Find out what pages the rows are of, and which can be taken.

    Args:
        batch: as read.
        now: clock time, Unix seconds.
        private_hosts: take pages on hosts that are not on the public internet.
    """
    values = batch.importance, batch.bounds, batch.crawled_at
    good = can_be_taken(*values, now)
    refused = {
        row: why_not(*(float(column[row]) for column in values))
        for row in np.flatnonzero(~good).tolist()
    }
    for row, name in enumerate(batch.classes or ()):
        if good[row] and (reason := why_no_class(name)):
            refused[row] = reason
            good[row] = False
    names = name_pages(batch.urls, good)
    refused |= names.refused
    if not private_hosts:
        refused |= _private(names)
    good &= names.host >= 0
    good[list(refused)] = False
    return NamedBatch(batch, names, np.flatnonzero(good), refused)


def _private(names: Names) -> dict[int, str]:
    """Rows of hosts that are not on the public internet."""
    are = np.array([is_private_host(host) for host in names.hosts], np.bool_)
    if not are.any():
        return {}
    rows = np.flatnonzero((names.host >= 0) & are[names.host])
    return {row: not_public(names.hosts[names.host[row]]) for row in rows.tolist()}


@dataclass(frozen=True, slots=True)
class PageRows:
    """Rows that are taken, sorted by shard and page id, each page once."""

    shards: NDArray[np.int16]
    page_ids: NDArray[np.int64]
    host_ids: NDArray[np.int64]
    importance: NDArray[np.float64]
    max_age_days: NDArray[np.float64]
    """NaN: that of a known page stays."""
    crawled_at: NDArray[np.float64]
    page_class: NDArray[np.int16]
    """`AS_IT_IS`: that of a known page stays."""
    urls: Texts
    """Canonical."""

    def take(self, chosen: NDArray[np.int64]) -> Self:
        """Some of them."""
        return self._with(chosen, self.urls.take(chosen))

    def part(self, begin: int, end: int) -> Self:
        """Those from one to before another, without a copy."""
        rows = slice(begin, end)
        urls = Texts(self.urls.arena, self.urls.begins[rows], self.urls.lengths[rows])
        return self._with(rows, urls)

    def _with(self, rows: slice | NDArray[np.int64], urls: Texts) -> Self:
        columns: dict[str, Any] = {
            column.name: getattr(self, column.name)[rows] for column in fields(self)[:-1]
        }
        return replace(self, **columns, urls=urls)

    def by_shard(self) -> Iterator[tuple[int, Self]]:
        """Shard → its rows."""
        shards, begins = np.unique(self.shards, return_index=True)
        bounds = [*begins.tolist(), self.shards.size]
        for place, shard in enumerate(shards.tolist()):
            yield shard, self.part(bounds[place], bounds[place + 1])


@dataclass(frozen=True, slots=True)
class ImportHosts:
    """The hosts of the rows that are taken, each once."""

    names: list[str]
    host_ids: NDArray[np.int64]
    shards: NDArray[np.int16]
    of_rows: NDArray[np.int64]
    """Place of each row's host."""


def hosts_of(batch: NamedBatch, rows: NDArray[np.int64], layout: Layout) -> ImportHosts:
    """The hosts of some rows of a batch, those first that come first.

    Args:
        batch: named.
        rows: of it, rising: those of the shards of a database.
        layout: of that database.
    """
    numbers, host = np.unique(batch.names.host[rows], return_inverse=True)
    found = [batch.names.hosts[number] for number in numbers.tolist()]
    return ImportHosts(
        found,
        np.array([host_id_of(name) for name in found], np.int64),
        np.array([layout.shard_of(name) for name in found], np.int16),
        host,
    )


def taken_rows(
    classes: ImportClasses,
    batch: NamedBatch,
    rows: NDArray[np.int64],
    hosts: ImportHosts,
    twins: Sequence[int],
) -> tuple[PageRows, dict[int, str]]:
    """The last row of each page, as its shard gets it; and rows that are refused all the same, as
    their host is none, or their shard has too many classes already.

    Args:
        classes: of the shards.
        batch: named.
        rows: of it, rising.
        hosts: theirs.
        twins: places of those hosts that have the id of another one.
    """
    names, host = batch.names, hosts.of_rows
    refused: dict[int, str] = {}
    if twins:
        is_none = np.isin(host, twins)
        none = zip(rows[is_none].tolist(), host[is_none].tolist(), strict=True)
        refused = {row: why_no_host(hosts.names[place]) for row, place in none}
        rows, host = rows[~is_none], host[~is_none]
    shards, page_ids = hosts.shards[host], names.page_ids[rows]
    order = np.lexsort((page_ids, shards))
    if order.size:
        # Stable: of rows about one page the last one is behind the others.
        order = order[np.append(page_ids[order][1:] != page_ids[order][:-1], True)]
    chosen, host = rows[order], host[order]
    given, bounds = batch.rows.classes, batch.rows.max_age_days
    named = None if given is None else [given[row] for row in chosen.tolist()]
    page_class, too_many = classes.numbers_of(shards[order], named)
    pages = PageRows(
        shards[order],
        page_ids[order],
        hosts.host_ids[host],
        np.asarray(batch.rows.importance[chosen], np.float64),
        np.full(chosen.size, np.nan) if bounds is None else np.asarray(bounds[chosen], np.float64),
        np.asarray(batch.rows.crawled_at[chosen], np.float64),
        page_class,
        names.urls.take(chosen),
    )
    if too_many:
        pages = pages.take(np.setdiff1d(np.arange(chosen.size), list(too_many)))
    return pages, refused | {int(chosen[place]): why for place, why in too_many.items()}
