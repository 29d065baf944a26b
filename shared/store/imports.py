"""Adding pages by the million, straight into the database, while no estimator runs.

An import takes all shards from their owners (`shared.store.owners`): an estimator that lost its
connection, and so did not keep the import out, loads them anew. It notes which pages it adds
(`shared.store.imports_log`), so that schedulers that run learn of them within seconds.
"""

import gc
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.databases import Database, Databases
from shared.contracts.identity import (
    BadUrl,
    PageIdentity,
    host_id_of,
    identify,
    is_private_host,
    not_public,
)
from shared.contracts.layout import Layout
from shared.store.binary import copy_bytes
from shared.store.class_numbers import NO_CLASS
from shared.store.connection import connect_writer
from shared.store.deployment import check_deployment
from shared.store.history import EMPTY, NOTHING_WAITS, WAITING_OFFSET
from shared.store.hosts import NO_SOURCES
from shared.store.import_classes import class_numbers, why_no_class
from shared.store.import_values import can_be_taken, why_not
from shared.store.imports_log import KEPT_SECONDS, forget_imports, note_import
from shared.store.layout import read_layout
from shared.store.owners import raise_epochs
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.store.source_times import PACKED_BYTES
from shared.store.tidying import tidy
from shared.store.writer_lock import writing_alone

MOST_REPORTED: Final = 20
"""Refused rows that are kept with their reasons; the others are only counted."""


@dataclass(frozen=True, slots=True)
class PageBatch:
    """Rows of an import, one element a page."""

    urls: Sequence[str]
    importance: NDArray[np.float64]
    max_age_days: NDArray[np.float64]
    """inf: no bound of its own."""
    crawled_at: NDArray[np.float64]
    """Unix seconds at which the copy already held was crawled; −inf: none."""
    identities: Sequence[PageIdentity] | None = None
    """Of the URLs, where the caller knows them."""
    classes: Sequence[str | None] | None = None
    """Of the pages, None: to have none; None in place of all: those of known pages stay."""


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


_NEW_PAGE: Final[dict[str, Any]] = {
    "unsignalled_change_rate": np.float64(np.nan),
    "signal_evidence": np.float64(np.nan),
    "signal_rate": np.float64(0),
    "last_changed_at": np.float64(NEVER),
    "last_signal_at": np.float64(NEVER),
    "urgent_at": np.float64(NEVER),
    "digest": np.int64(0),
    "signal_count": np.int64(0),
    "signals": np.int32(0),
    "crawls": np.int32(0),
    "changes": np.int32(0),
    "failures": np.int32(0),
    "misses": np.int16(0),
    "status": np.int16(ACTIVE),
}
"""What a page has before its first crawl."""

_INSERT_HOSTS: Final = f"""
INSERT INTO hosts (shard, host_id, host, blocked_until, limit_updated_at, sources)
SELECT shard, host_id, host, '-infinity'::float8, '-infinity'::float8, '{NO_SOURCES}'
FROM unnest(%s::int2[], %s::int8[], %s::text[]) AS new (shard, host_id, host)
ORDER BY shard, host_id
ON CONFLICT DO NOTHING
"""


def _unless_removed(column: str, anew: str = "'-infinity'") -> str:
    """A column of a known page, or what it is of one that was removed."""
    return f"CASE WHEN page.status = {REMOVED} THEN {anew} ELSE page.{column} END"


_ANEW: Final = {
    "last_changed_at": "'-infinity'",
    "last_signal_at": "'-infinity'",
    "urgent_at": "'-infinity'",
    "digest": "0",
    "signals": "0",
    "history": f"overlay(page.history PLACING '\\x{NOTHING_WAITS.hex()}' "
    f"FROM {WAITING_OFFSET + 1})",
    "signal_times": f"substr('\\x{'ff' * PACKED_BYTES}'::bytea, 1, length(page.signal_times))",
}
"""Of a page that was removed: it is a new one, as by `page-updates`. What was learned stays."""

_UPDATE_PAGES: Final = f"""
WITH updated AS (
    UPDATE pages AS page
    SET importance = new.importance, max_age_days = new.max_age_days,
        last_crawled_at = greatest({_unless_removed("last_crawled_at")}, new.crawled_at),
        last_attempt_at = greatest({_unless_removed("last_attempt_at")}, new.crawled_at),
        {", ".join(f"{name} = {_unless_removed(name, anew)}" for name, anew in _ANEW.items())},
        updated_at = greatest(page.updated_at, %s), status = {ACTIVE},
        page_class = CASE WHEN new.page_class >= 0 THEN new.page_class
                     WHEN page.status = {REMOVED} THEN 0 ELSE page.page_class END,
        failures = CASE WHEN page.status = {REMOVED} OR new.crawled_at >= page.last_attempt_at
                   THEN 0 ELSE page.failures END,
        misses = CASE WHEN page.status = {REMOVED} OR new.crawled_at >= page.last_attempt_at
                 THEN 0 ELSE page.misses END
    FROM unnest(%s::int2[], %s::int8[], %s::float8[], %s::float8[], %s::float8[], %s::int2[])
        AS new (shard, page_id, importance, max_age_days, crawled_at, page_class)
    WHERE page.shard = new.shard AND page.page_id = new.page_id
    RETURNING page.page_id)
SELECT coalesce(array_agg(page_id), ARRAY[]::int8[]) FROM updated
"""


def import_pages(
    database_url: str,
    shards: int,
    batches: Iterable[PageBatch],
    *,
    now: float,
    progress: Callable[[ImportReport], None] = lambda _report: None,
    private_hosts: bool = True,
) -> ImportReport:
    """`import_shared`, into the only database there is."""
    return import_shared(
        Databases.alone(database_url),
        shards,
        batches,
        now=now,
        progress=progress,
        private_hosts=private_hosts,
    )


def import_shared(
    databases: Databases,
    shards: int,
    batches: Iterable[PageBatch],
    *,
    now: float,
    progress: Callable[[ImportReport], None] = lambda _report: None,
    private_hosts: bool = True,
) -> ImportReport:
    """Add pages, or set importance and bounds of known ones; a commit after each batch, in each
    database.

    Args:
        databases: migrated ones; all are there, or nothing begins.
        shards: their configured number; the databases may have more by now.
        batches: rows; about 100,000 in each go fastest. Of two rows about a page in one batch the
            last counts.
        now: clock time, Unix seconds: when new pages are first seen.
        progress: called after each batch with the counts so far.
        private_hosts: take pages on hosts that are not on the public internet.

    Raises:
        StoreBusy: an estimator is connected; send `page-updates` messages instead, or stop it.
        StoreMismatch: a database is not migrated, or for another number of shards, or others.
    """
    report = ImportReport()
    with ExitStack() as stack:
        opened = [(database, *_begin(stack, database, shards, now)) for database in databases.each]
        known_hosts: set[str] = set()
        for batch in batches:
            with _uncollected():
                named = _identified(batch, report, now, private_hosts=private_hosts)
            for database, connection, layout in opened:
                here = _had_by(database, databases, named)
                pages = _taken(connection, batch, here, layout, report)
                _import_batch(connection, pages, now, known_hosts, report)
            progress(report)
        for _, connection, _ in opened:
            tidy(connection, report.added)
    return report


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nobody looks for what refers to itself: among a batch's names, of which none does, that takes
    as long as making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _had_by(
    database: Database, databases: Databases, named: list[tuple[int, PageIdentity]]
) -> list[tuple[int, PageIdentity]]:
    """Pages whose shards a database has."""
    if not databases.are_several:
        return named
    return [one for one in named if databases.of_host(one[1].host) == database]


def _begin(
    stack: ExitStack, database: Database, shards: int, now: float
) -> tuple[psycopg.Connection, Layout]:
    """Connect, keep estimators and splits out, and take the shards over."""
    connection = stack.enter_context(connect_writer(database.url, "import"))
    check_deployment(connection, shards, database.held)
    stack.enter_context(writing_alone(connection))
    # Only now: no shard is split while an import has the lock.
    layout = read_layout(connection)
    raise_epochs(connection, range(layout.shards), f"import/{os.getpid()}-{secrets.token_hex(4)}")
    forget_imports(connection, now - KEPT_SECONDS)
    connection.commit()
    return connection, layout


@dataclass(frozen=True, slots=True)
class _Pages:
    """Rows that can be taken, sorted by shard and page id, each page once."""

    shards: NDArray[np.int16]
    page_ids: NDArray[np.int64]
    host_ids: NDArray[np.int64]
    importance: NDArray[np.float64]
    max_age_days: NDArray[np.float64]
    crawled_at: NDArray[np.float64]
    page_class: NDArray[np.int16]
    """`AS_IT_IS`: that of a known page stays."""
    identities: list[PageIdentity]

    def take(self, chosen: NDArray[np.int64]) -> Self:
        """Some of them."""
        columns: list[Any] = [getattr(self, field.name)[chosen] for field in fields(self)[:-1]]
        columns.append([self.identities[row] for row in chosen.tolist()])
        return type(self)(*columns)


def _import_batch(
    connection: psycopg.Connection,
    pages: _Pages,
    now: float,
    known_hosts: set[str],
    report: ImportReport,
) -> None:
    """Hosts, known pages and new ones of a batch, in one transaction."""
    _add_hosts(connection, pages, known_hosts)
    row = connection.execute(
        _UPDATE_PAGES,
        (
            now,
            pages.shards,
            pages.page_ids,
            pages.importance,
            pages.max_age_days,
            pages.crawled_at,
            pages.page_class,
        ),
        binary=True,
    ).fetchone()
    known = row[0] if row else pages.page_ids[:0]
    new = pages.take(np.flatnonzero(~np.isin(pages.page_ids, known)))
    _copy_pages(connection, new, now)
    note_import(connection, pages.shards, pages.page_ids, now)
    connection.commit()
    report.updated += known.size
    report.added += new.page_ids.size


def _add_hosts(connection: psycopg.Connection, pages: _Pages, known: set[str]) -> None:
    """Add the hosts that this import has not met yet."""
    new = {page.host: row for row, page in enumerate(pages.identities) if page.host not in known}
    if new:
        rows = list(new.values())
        arrays = (pages.shards[rows], pages.host_ids[rows], list(new))
        connection.execute(_INSERT_HOSTS, arrays)
        known.update(new)


def _copy_pages(connection: psycopg.Connection, new: _Pages, now: float) -> None:
    """Add pages that are not there: rows in binary, URLs as text."""
    if not new.page_ids.size:
        return
    values: dict[str, Any] = {
        "shard": new.shards,
        "page_id": new.page_ids,
        "host_id": new.host_ids,
        "importance": new.importance,
        "max_age_days": new.max_age_days,
        "last_crawled_at": new.crawled_at,
        "last_attempt_at": new.crawled_at,
        "page_class": np.maximum(new.page_class, NO_CLASS),
        "history": EMPTY,
    }
    values |= _NEW_PAGE
    for name in ("first_seen_at", "updated_at"):
        values[name] = np.float64(now)
    statement = f"COPY pages ({', '.join(values)}) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(copy_bytes(list(values.values())))
    keys = zip(new.shards.tolist(), new.page_ids.tolist(), new.identities, strict=True)
    lines = "".join([f"{shard}\t{page_id}\t{page.url}\n" for shard, page_id, page in keys])
    with connection.cursor() as cursor, cursor.copy("COPY page_urls FROM STDIN") as copy:
        # A canonical URL has no tab and no end of line, but its query may have backslashes.
        copy.write(lines.replace("\\", "\\\\"))


def _taken(
    connection: psycopg.Connection,
    batch: PageBatch,
    named: Sequence[tuple[int, PageIdentity]],
    layout: Layout,
    report: ImportReport,
) -> _Pages:
    """Rows of a batch, given with their pages, by shard."""
    rows = np.array([row for row, _ in named], np.int64)
    shards = np.array([layout.shard_of(page.host) for _, page in named], np.int16)
    names = None if batch.classes is None else [batch.classes[row] for row, _ in named]
    numbers, refused = class_numbers(connection, shards, names)
    for place, reason in refused.items():
        report.refuse(report.read - len(batch.urls) + named[place][0] + 1, reason)
    pages = _Pages(
        shards,
        np.array([page.page_id for _, page in named], np.int64),
        np.array([host_id_of(page.host) for _, page in named], np.int64),
        np.asarray(batch.importance[rows], np.float64),
        np.asarray(batch.max_age_days[rows], np.float64),
        np.asarray(batch.crawled_at[rows], np.float64),
        numbers,
        [page for _, page in named],
    )
    order = np.lexsort((pages.page_ids, pages.shards))
    return pages.take(order[~np.isin(order, list(refused))])


def _identified(
    batch: PageBatch, report: ImportReport, now: float, *, private_hosts: bool
) -> list[tuple[int, PageIdentity]]:
    """The rows that can be taken, the last of each page."""
    values = batch.importance, batch.max_age_days, batch.crawled_at
    good = can_be_taken(*values, now)
    pages: dict[int, tuple[int, PageIdentity]] = {}
    for row, url in enumerate(batch.urls):
        number = report.read + row + 1
        if not good[row]:
            report.refuse(number, why_not(*(float(column[row]) for column in values)))
            continue
        if batch.classes is not None and (reason := why_no_class(batch.classes[row])):
            report.refuse(number, reason)
            continue
        try:
            page = identify(url) if batch.identities is None else batch.identities[row]
        except BadUrl as error:
            report.refuse(number, str(error))
            continue
        if not private_hosts and is_private_host(page.host):
            report.refuse(number, not_public(page.host))
            continue
        pages[page.page_id] = (row, page)
    report.read += len(batch.urls)
    return list(pages.values())
