"""Adding pages by the million, straight into the database, while no estimator runs.

An import takes all shards from their owners (`shared.store.owners`): an estimator that lost its
connection, and so did not keep the import out, loads them anew. It notes which pages it adds
(`shared.store.imports_log`), so that schedulers that run learn of them within seconds.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import psycopg

from shared.contracts.databases import Database, Databases
from shared.contracts.layout import Layout
from shared.store.connection import connect_writer, first_line
from shared.store.deployment import check_deployment
from shared.store.import_classes import ImportClasses
from shared.store.import_rows import (
    ImportReport,
    NamedBatch,
    PageBatch,
    hosts_of,
    named_batch,
    taken_rows,
)
from shared.store.import_writing import MetHosts, add_hosts, add_pages
from shared.store.imports_log import KEPT_SECONDS, forget_imports, note_import
from shared.store.layout import read_layout
from shared.store.owners import raise_epochs
from shared.store.tidying import tidy
from shared.store.writer_lock import writing_alone

ROWS_A_BATCH: Final = 400_000
"""With so many a batch goes fastest: thousands for each shard."""


class _Opened(NamedTuple):
    """A database that is written to."""

    database: Database
    connection: psycopg.Connection
    layout: Layout
    classes: ImportClasses


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
    database, one after the other.

    Args:
        databases: migrated ones; all are there, or nothing begins.
        shards: their configured number; the databases may have more by now.
        batches: rows, `ROWS_A_BATCH` in each (see `gathered`). Of two rows about a page in one
            batch the last counts. The next batch is read, in a thread, while one is written.
        now: clock time, Unix seconds: when new pages are first seen.
        progress: called after each commit with the counts so far.
        private_hosts: take pages on hosts that are not on the public internet.

    Raises:
        StoreBusy: an estimator is connected; send `page-updates` messages instead, or stop it.
        StoreMismatch: a database is not migrated, or for another number of shards, or others.
        psycopg.Error: a database is away, or refuses; of several it says which.
    """
    report, met = ImportReport(), MetHosts()
    with ExitStack() as stack:
        opened = [_begin(stack, database, shards, now) for database in databases.each]
        for batch in _ahead(named_batch(one, now, private_hosts=private_hosts) for one in batches):
            refused = dict(batch.refused)
            for one in opened:
                with _named(one.database):
                    refused |= _write(one, batch, databases, met, report, now)
                # What is in the first of several is said though the next one fails.
                progress(report)
            for row in sorted(refused):
                report.refuse(report.read + row + 1, refused[row])
            report.read += len(batch.rows.urls)
            progress(report)
        for one in opened:
            tidy(one.connection, report.added)
    return report


def _write(
    opened: _Opened,
    batch: NamedBatch,
    databases: Databases,
    met: MetHosts,
    report: ImportReport,
    now: float,
) -> dict[int, str]:
    """Write and count the rows of a batch that a database has; those that are refused."""
    connection = opened.connection
    rows = batch.of_database(opened.database, databases)
    hosts = hosts_of(batch, rows, opened.layout)
    twins = add_hosts(connection, hosts, met)
    pages, refused = taken_rows(opened.classes, batch, rows, hosts, twins)
    new = add_pages(connection, pages, now)
    note_import(connection, pages.shards, pages.page_ids, now)
    connection.commit()
    report.added += new
    report.updated += pages.page_ids.size - new
    return refused


@contextmanager
def _named(database: Database) -> Iterator[None]:
    """Say of several databases which one an error is about."""
    try:
        yield
    except psycopg.Error as error:
        if database.held is None:
            raise
        raise type(error)(f"shards {database.held}: {first_line(error)}") from error


def _ahead(batches: Iterator[NamedBatch]) -> Iterator[NamedBatch]:
    """The same, each made while the one before it is worked on."""
    with ThreadPoolExecutor(1, "import") as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch


def _begin(stack: ExitStack, database: Database, shards: int, now: float) -> _Opened:
    """Connect, keep estimators and splits out, and take the shards over."""
    connection = stack.enter_context(connect_writer(database.url, "import"))
    check_deployment(connection, shards, database.held)
    stack.enter_context(writing_alone(connection))
    # Only now: no shard is split while an import has the lock.
    layout = read_layout(connection)
    raise_epochs(connection, range(layout.shards), f"import/{os.getpid()}-{secrets.token_hex(4)}")
    forget_imports(connection, now - KEPT_SECONDS)
    connection.commit()
    return _Opened(database, connection, layout, ImportClasses(connection))
