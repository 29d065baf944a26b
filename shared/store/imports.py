"""Adding pages by the million, straight into the database, while no estimator runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.identity import BadUrl, PageIdentity, host_id_of, identify, shard_of
from shared.store.connection import connect_writer
from shared.store.history import EMPTY
from shared.store.migration import check_deployment
from shared.store.models import ACTIVE, NEVER

WRITER_LOCK: Final = 0x66726573_0002
"""Advisory lock: estimators share it, an import has it alone, because they cache the pages."""

MOST_REPORTED: Final = 20
"""Refused rows that are kept with their reasons; the others are only counted."""


class StoreBusy(Exception):
    """An import and an estimator exclude each other; the text says who waits for whom."""


def share_writer_lock(connection: psycopg.Connection) -> None:
    """Keep imports out for as long as this connection lasts.

    Raises:
        StoreBusy: an import is under way.
    """
    got = connection.execute("SELECT pg_try_advisory_lock_shared(%s)", (WRITER_LOCK,)).fetchone()
    connection.commit()
    if not (got and got[0]):
        raise StoreBusy("an import of pages is under way: waiting for its end")


@dataclass(frozen=True, slots=True)
class PageBatch:
    """Rows of an import, one element a page."""

    urls: Sequence[str]
    importance: NDArray[np.float64]
    max_age_days: NDArray[np.float64]
    """inf: no bound of its own."""
    crawled_at: NDArray[np.float64]
    """Unix seconds at which the copy already held was crawled; −inf: none."""


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


_STAGING: Final = """
CREATE TEMPORARY TABLE incoming (
    shard int2, page_id int8, host_id int8, importance float8, max_age_days float8,
    crawled_at float8, url text, host text
) ON COMMIT DROP
"""

_INSERT_HOSTS: Final = """
INSERT INTO hosts (shard, host_id, host, blocked_until, limit_updated_at, sources)
SELECT DISTINCT ON (shard, host_id) shard, host_id, host, '-infinity'::float8, '-infinity'::float8,
    '[]'
FROM incoming ORDER BY shard, host_id
ON CONFLICT DO NOTHING
"""

_UPDATE_PAGES: Final = f"""
UPDATE pages AS page
SET importance = new.importance, max_age_days = new.max_age_days,
    last_crawled_at = greatest(page.last_crawled_at, new.crawled_at),
    last_attempt_at = greatest(page.last_attempt_at, new.crawled_at),
    updated_at = greatest(page.updated_at, %(now)s), status = {ACTIVE}
FROM incoming AS new
WHERE page.shard = new.shard AND page.page_id = new.page_id
"""

_INSERT_PAGES: Final = f"""
INSERT INTO pages (
    shard, page_id, host_id, importance, max_age_days, unsignalled_change_rate, signal_evidence,
    signal_rate, first_seen_at, last_crawled_at, last_attempt_at, last_changed_at, last_signal_at,
    updated_at, digest, signal_count, signals, crawls, changes, failures, status, history)
SELECT shard, page_id, host_id, importance, max_age_days, 'NaN', 'NaN', 0, %(now)s,
    crawled_at, crawled_at, '-infinity', '-infinity', %(now)s, 0, 0, 0, 0, 0, 0, {ACTIVE},
    '\\x{EMPTY.hex()}'
FROM incoming ORDER BY shard, page_id
ON CONFLICT DO NOTHING
"""

_INSERT_URLS: Final = """
INSERT INTO page_urls (shard, page_id, url)
SELECT shard, page_id, url FROM incoming ORDER BY shard, page_id
ON CONFLICT DO NOTHING
"""


def import_pages(
    database_url: str,
    shards: int,
    batches: Iterable[PageBatch],
    *,
    now: float,
    progress: Callable[[ImportReport], None] = lambda _report: None,
) -> ImportReport:
    """Add pages, or set importance and bounds of known ones; a commit after each batch.

    Args:
        database_url: libpq URL of a migrated database.
        shards: their configured number.
        batches: rows; about 100,000 in each go fastest. Of two rows about a page in one batch the
            last counts.
        now: clock time, Unix seconds: when new pages are first seen.
        progress: called after each batch with the counts so far.

    Raises:
        StoreBusy: an estimator is connected; send `page-updates` messages instead, or stop it.
        StoreMismatch: the database is not migrated, or for another number of shards.
    """
    report = ImportReport()
    with connect_writer(database_url, "import") as connection:
        check_deployment(connection, shards)
        got = connection.execute("SELECT pg_try_advisory_lock(%s)", (WRITER_LOCK,)).fetchone()
        if not (got and got[0]):
            raise StoreBusy(
                "an estimator works on this database and would not see pages that are added "
                "behind its back: send them as page-updates, or stop the workers first"
            )
        connection.commit()
        for batch in batches:
            _import_batch(connection, shards, batch, now, report)
            progress(report)
        connection.execute("ANALYZE pages")
    return report


def _import_batch(
    connection: psycopg.Connection, shards: int, batch: PageBatch, now: float, report: ImportReport
) -> None:
    rows = _identified(batch, report)
    connection.execute(_STAGING)
    with connection.cursor() as cursor, cursor.copy("COPY incoming FROM STDIN") as copy:
        for row, page in rows:
            copy.write_row(
                (
                    shard_of(page.host, shards),
                    page.page_id,
                    host_id_of(page.host),
                    float(batch.importance[row]),
                    float(batch.max_age_days[row]),
                    float(batch.crawled_at[row]),
                    page.url,
                    page.host,
                )
            )
    parameters: dict[str, Any] = {"now": now}
    connection.execute(_INSERT_HOSTS)
    report.updated += connection.execute(_UPDATE_PAGES, parameters).rowcount
    report.added += connection.execute(_INSERT_PAGES, parameters).rowcount
    connection.execute(_INSERT_URLS)
    connection.commit()


def _identified(batch: PageBatch, report: ImportReport) -> list[tuple[int, PageIdentity]]:
    """The rows that can be taken, the last of each page."""
    good = (
        (np.isfinite(batch.importance) & (batch.importance >= 0))
        & (batch.max_age_days > 0)
        & ((batch.crawled_at >= 0) | (batch.crawled_at == NEVER))
        & (batch.crawled_at < np.inf)
    )
    pages: dict[int, tuple[int, PageIdentity]] = {}
    for row, url in enumerate(batch.urls):
        number = report.read + row + 1
        if not good[row]:
            report.refuse(
                number,
                f"importance {batch.importance[row]} must be ≥ 0, max_age_days "
                f"{batch.max_age_days[row]} > 0 and crawled_at {batch.crawled_at[row]} a time",
            )
            continue
        try:
            page = identify(url)
        except BadUrl as error:
            report.refuse(number, str(error))
            continue
        pages[page.page_id] = (row, page)
    report.read += len(batch.urls)
    return list(pages.values())
