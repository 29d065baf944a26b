"""Which pages came by import: noted in the transaction that adds them, for whoever runs meanwhile.

An import writes straight into the database, so no topic tells of its pages. A scheduler that runs
looks here every other second, and takes what is new of its shards. Numbers rise with each commit
of an import, shard by shard, without a gap; there is one import at a time.

A server may lose an import, as a standby does that is promoted without the last commits, and give
its number to the next one. Their times tell them apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.messages import PageUpdate
from shared.policy.estimation.page_factors import activity_bins
from shared.store.last_imports import NO_IMPORT, LastImport
from shared.store.owners import ids_of, packed_ids
from shared.store.page_status import ACTIVE
from shared.units import SECONDS_PER_DAY

KEPT_SECONDS: Final = 7 * SECONDS_PER_DAY
"""Notes are kept for so long; a scheduler that has not seen the database since then must load its
shards anew."""

PAGES_AT_ONCE: Final = 1000
"""Of an import: so many are read from the database, and applied, at a time."""


class ImportsForgotten(Exception):
    """What imports did is not noted: it is so long ago, or the database has lost it. Load the shard
    anew."""


@dataclass(frozen=True, slots=True)
class PageImport:
    """A commit of an import, as far as one shard is concerned."""

    shard: int
    last: LastImport
    """As who has taken it knows it."""
    page_ids: NDArray[np.int64]


def read_last_import(connection: psycopg.Connection, shard: int) -> LastImport:
    """A shard's last import; `NO_IMPORT`: there was none."""
    row = connection.execute(
        "SELECT number, imported_at FROM page_imports WHERE shard = %s "
        "ORDER BY number DESC LIMIT 1",
        (shard,),
    ).fetchone()
    return LastImport(*row) if row else NO_IMPORT


def note_import(
    connection: psycopg.Connection,
    shards: NDArray[np.int16],
    page_ids: NDArray[np.int64],
    imported_at: float,
) -> None:
    """Note pages that the same transaction adds or changes.

    Args:
        connection: of the one import that is under way.
        shards: of the pages, rising.
        page_ids: of the same pages.
        imported_at: clock time, Unix seconds.
    """
    if not shards.size:
        return  # all rows of a batch may have been refused
    numbers, begins = np.unique(shards, return_index=True)
    parts = np.split(page_ids, begins[1:])
    connection.execute(
        "INSERT INTO page_imports (shard, number, page_ids, imported_at) "
        "SELECT new.shard, 1 + coalesce("
        "(SELECT max(number) FROM page_imports AS old WHERE old.shard = new.shard), %s), "
        "new.page_ids, %s FROM unnest(%s::int2[], %s::bytea[]) AS new (shard, page_ids)",
        (NO_IMPORT.number, imported_at, numbers, [packed_ids(part) for part in parts]),
    )


def forget_imports(connection: psycopg.Connection, before: float) -> None:
    """Forget notes of before a time, but each shard's last one, which tells how far it is."""
    connection.execute(
        "DELETE FROM page_imports AS old WHERE imported_at < %s AND number < "
        "(SELECT max(number) FROM page_imports AS new WHERE new.shard = old.shard)",
        (before,),
    )


def read_imports(
    connection: psycopg.Connection, seen: Mapping[int, LastImport], most: int = 1
) -> list[PageImport]:
    """The next imports of shards, in order of their numbers.

    Args:
        connection: any.
        seen: shard → the last import that is known.
        most: how many of each shard.

    Raises:
        ImportsForgotten: some in between are not noted any more, or the database has lost what is
            known.
    """
    shards = sorted(seen)
    rows = connection.execute(
        "SELECT shard, number, imported_at, CASE WHEN number > seen.last THEN page_ids END "
        "FROM unnest(%s::int2[], %s::int8[]) AS seen (of, last), "
        "LATERAL (SELECT shard, number, imported_at, page_ids FROM page_imports "
        "WHERE shard = seen.of AND number >= seen.last ORDER BY number LIMIT %s) AS new",
        (
            np.array(shards, np.int16),
            np.array([seen[shard].number for shard in shards], np.int64),
            1 + most,
        ),
    ).fetchall()
    noted: dict[int, list[tuple[LastImport, Any]]] = {shard: [] for shard in shards}
    for shard, number, imported_at, packed in rows:
        noted[shard].append((LastImport(number, imported_at), packed))
    return [
        PageImport(shard, one, ids_of(packed))
        for shard in shards
        for one, packed in _following(shard, seen[shard], noted[shard])[:most]
    ]


def _following(
    shard: int, seen: LastImport, noted: Sequence[tuple[LastImport, Any]]
) -> Sequence[tuple[LastImport, Any]]:
    """What comes after an import, of what is noted from its number on.

    Its own note may be forgotten, but not while it is the last one.
    """
    first = noted[0][0] if noted else NO_IMPORT
    if first.number <= seen.number and first != seen:
        raise ImportsForgotten(
            f"shard {shard}: the database has lost import {seen.number}, which was taken from it"
        )
    following = noted[1:] if first == seen else noted
    for before, number in pairwise([seen.number, *(one.number for one, _ in following)]):
        if number != before + 1:
            raise ImportsForgotten(
                f"shard {shard}: imports {before + 1} to {number - 1} are not noted any more"
            )
    return following


def read_imported_pages(
    connection: psycopg.Connection, shard: int, page_ids: NDArray[np.int64]
) -> list[PageUpdate]:
    """Pages as they stand now, as the updates that would make them so.

    One that was removed or has gone meanwhile is left out: what did that is on the topics.
    """
    rows = connection.execute(
        "SELECT url, importance, nullif(max_age_days, 'infinity'), "
        "nullif(last_crawled_at, '-infinity'), updated_at, (SELECT name FROM page_classes AS class "
        "WHERE class.shard = pages.shard AND class.number = pages.page_class) "
        "FROM pages JOIN page_urls USING (shard, page_id) "
        "WHERE shard = %s AND page_id = ANY(%s) AND status = %s",
        (shard, page_ids, ACTIVE),
    ).fetchall()
    return [
        PageUpdate(
            "upsert",
            url,
            importance,
            max_age_days,
            updated_at,
            crawled_at,
            no_max_age=max_age_days is None,
            page_class=name,
        )
        for url, importance, max_age_days, crawled_at, updated_at, name in rows
    ]


class LearnedPages(NamedTuple):
    """What was learned of pages, as `page-parameters` say it; one element a page."""

    page_ids: NDArray[np.int64]
    change_rate: NDArray[np.float64]
    """α; NaN: its host's."""
    signal_evidence: NDArray[np.float64]
    """κ̄; NaN: its host's."""
    signal_rate: NDArray[np.float64]
    activity: NDArray[np.uint8]


def read_learned(
    connection: psycopg.Connection, shard: int, page_ids: NDArray[np.int64]
) -> LearnedPages:
    """What was learned of those of these pages of which anything was."""
    rows = connection.execute(
        "SELECT page_id, unsignalled_change_rate, signal_evidence, signal_rate, signal_count "
        "FROM pages WHERE shard = %s AND page_id = ANY(%s) AND "
        "(unsignalled_change_rate <> 'NaN' OR signal_rate > 0)",
        (shard, page_ids),
    ).fetchall()
    ids, rates, evidence, signalled, counts = zip(*rows, strict=True) if rows else [()] * 5
    own = np.array(rates, float)
    return LearnedPages(
        np.array(ids, np.int64),
        own,
        np.where(np.isnan(own), np.nan, np.array(evidence, float)),
        np.array(signalled, float),
        activity_bins(np.array(counts, float)),
    )
