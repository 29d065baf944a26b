"""The functions of `shared.store.imports` and `shared.store.imports_log`, on the model."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database, Row
from shared.contracts.identity import host_id_of, identify
from shared.contracts.messages import PageUpdate
from shared.policy.estimation.page_factors import activity_bins
from shared.store.class_numbers import AS_IT_IS, NO_CLASS, PageClasses
from shared.store.history import EMPTY, NOTHING_WAITS, WAITING_OFFSET
from shared.store.host_factors import NONE as NO_FACTORS
from shared.store.hosts import NO_SOURCES
from shared.store.imports_log import LearnedPages, PageImport
from shared.store.last_imports import NO_IMPORT, LastImport
from shared.store.owners import NO_OWNER
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.store.writer_lock import StoreBusy

_NEW_PAGE: Final[Row] = {
    "max_age_days": math.inf,
    "unsignalled_change_rate": math.nan,
    "signal_evidence": math.nan,
    "signal_rate": 0.0,
    "last_crawled_at": NEVER,
    "last_attempt_at": NEVER,
    "last_changed_at": NEVER,
    "last_signal_at": NEVER,
    "urgent_at": NEVER,
    "digest": 0,
    "signal_count": 0,
    "signals": 0,
    "crawls": 0,
    "changes": 0,
    "failures": 0,
    "misses": 0,
    "status": ACTIVE,
    "page_class": NO_CLASS,
    "history": EMPTY,
    "signal_times": b"",
}
"""What a page has before its first crawl."""

_SINCE_ADDED: Final = (
    *("last_crawled_at", "last_attempt_at", "last_changed_at", "last_signal_at", "urgent_at"),
    *("digest", "signals", "failures", "misses", "page_class"),
)
"""What is as of a new page in one that was removed and is added again."""

_NEW_HOST: Final[Row] = {
    "max_crawls_per_second": None,
    "blocked_until": NEVER,
    "crawl_delay": None,
    "asked_until": NEVER,
    "failures": 0,
    "failed_at": NEVER,
    "max_open_requests": None,
    "named_group": None,
    "named_since": NEVER,
    "limit_updated_at": NEVER,
    "prior_shape": None,
    "prior_rate": None,
    "sources": NO_SOURCES,
    "learning": None,
    "factors": NO_FACTORS,
    "quiet_found": 0.0,
    "quiet_predicted": 0.0,
    "quiet_belief": 1.0,
}


class ImportStatements:
    """Imports, and who looks for them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def share_writer_lock(self, connection: Connection) -> None:
        """As `shared.store.writer_lock.share_writer_lock`.

        Raises:
            StoreBusy: an import is under way.
        """
        if connection.database.is_importing:
            raise StoreBusy("an import of pages is under way")

    def begin_import(self) -> None:
        """What an import does first: all shards are taken from their owners."""
        database = self._database
        database.is_importing = True
        least = int(1000 * (BEGINNING + database.loop.now))
        for shard, row in database.owners.items():
            epoch = max(int(row.get("epoch", NO_OWNER)) + 1, least)
            database.owners[shard] = row | {"epoch": epoch, "holder": "import"}

    def import_pages(self, updates: Iterable[PageUpdate]) -> None:
        """As a batch of `shared.store.imports.import_pages`."""
        database = self._database
        noted: dict[int, list[int]] = {}
        now = BEGINNING + database.loop.now
        for update in updates:
            page = identify(update.url)
            shard = database.layout.shard_of(page.host)
            self._add_host(shard, page.host)
            self._add_page(shard, page.page_id, page.host, update)
            noted.setdefault(shard, []).append(page.page_id)
        for shard, page_ids in noted.items():
            ids = np.array(sorted(page_ids), np.int64)
            one = LastImport(last_import(database, shard).number + 1, now)
            database.imports.setdefault(shard, []).append(PageImport(shard, one, ids))

    def end_import(self) -> None:
        """Estimators may work again."""
        self._database.is_importing = False

    def _add_host(self, shard: int, host: str) -> None:
        number = host_id_of(host)
        known = self._database.hosts.setdefault(shard, {})
        new = _NEW_HOST | {"shard": shard, "host_id": number, "host": host}
        known.setdefault(number, new)

    def _add_page(self, shard: int, page_id: int, host: str, update: PageUpdate) -> None:
        at = float(update.updated_at or 0.0)
        rows = self._database.pages.setdefault(shard, {})
        own: Row = {"importance": float(update.importance or 1.0), "status": ACTIVE}
        classes = PageClasses(self._database.classes.get(shard))
        if (number := classes.number_of(update.page_class)) != AS_IT_IS:
            own["page_class"] = number
        self._database.classes[shard] = classes.names
        if page_id in rows:
            if rows[page_id]["status"] == REMOVED:
                own = _anew(rows[page_id]) | own
            own |= {"max_age_days": math.inf, "updated_at": max(rows[page_id]["updated_at"], at)}
            rows[page_id].update(own)
            return
        own |= {"shard": shard, "page_id": page_id, "host_id": host_id_of(host)}
        rows[page_id] = _NEW_PAGE | own | {"first_seen_at": at, "updated_at": at}
        self._database.urls[shard, page_id] = update.url

    def read_imports(
        self, connection: Connection, seen: Mapping[int, LastImport], most: int = 1
    ) -> list[PageImport]:
        """As `shared.store.imports_log.read_imports`."""
        connection.database.check()
        # Nothing is lost here, and nothing forgotten.
        return [
            one
            for shard, last in sorted(seen.items())
            for one in self._database.imports.get(shard, ())
            if last.number < one.last.number <= last.number + most
        ]

    def read_imported_pages(
        self, connection: Connection, shard: int, page_ids: NDArray[np.int64]
    ) -> list[PageUpdate]:
        """As `shared.store.imports_log.read_imported_pages`."""
        connection.database.check()
        rows = self._database.pages.get(shard, {})
        found = [rows[page_id] for page_id in page_ids.tolist() if page_id in rows]
        return [
            PageUpdate(
                "upsert",
                self._database.urls[shard, row["page_id"]],
                row["importance"],
                _finite(row["max_age_days"]),
                row["updated_at"],
                _finite(row["last_crawled_at"]),
                no_max_age=not math.isfinite(row["max_age_days"]),
                page_class=self._database.classes.get(shard, {}).get(row["page_class"]),
            )
            for row in found
            if row["status"] == ACTIVE
        ]

    def read_learned(
        self, connection: Connection, shard: int, page_ids: NDArray[np.int64]
    ) -> LearnedPages:
        """As `shared.store.imports_log.read_learned`."""
        connection.database.check()
        rows = self._database.pages.get(shard, {})
        found = [rows[page_id] for page_id in page_ids.tolist() if page_id in rows]
        learned = [
            row
            for row in found
            if not math.isnan(row["unsignalled_change_rate"]) or row["signal_rate"] > 0.0
        ]
        own = np.array([row["unsignalled_change_rate"] for row in learned], float)
        evidence = np.array([row["signal_evidence"] for row in learned], float)
        return LearnedPages(
            np.array([row["page_id"] for row in learned], np.int64),
            own,
            np.where(np.isnan(own), np.nan, evidence),
            np.array([row["signal_rate"] for row in learned], float),
            activity_bins(np.array([row["signal_count"] for row in learned], float)),
        )


def _anew(row: Row) -> Row:
    """What a page that was removed has when it is added again."""
    end = WAITING_OFFSET + len(NOTHING_WAITS)
    history = row["history"][:WAITING_OFFSET] + NOTHING_WAITS + row["history"][end:]
    times = b"\xff" * len(row["signal_times"])
    since_added = {name: _NEW_PAGE[name] for name in _SINCE_ADDED}
    return since_added | {"history": history, "signal_times": times}


def last_import(database: Database, shard: int) -> LastImport:
    """A shard's last import."""
    noted = database.imports.get(shard)
    return noted[-1].last if noted else NO_IMPORT


def _finite(value: float) -> Any:
    return value if math.isfinite(value) else None
