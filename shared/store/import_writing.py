"""The statements of an import: hosts, known pages, and new ones as fast as the server takes them.

What costs the server most is done shard by shard. A look for a page among all partitions costs ten
times one in its own. A COPY that changes from partition to partition, or is of few rows, makes room
for a thousand rows over and over again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.binary import COPY_BEGIN, COPY_END, copy_rows
from shared.store.class_numbers import NO_CLASS
from shared.store.history import EMPTY, NOTHING_WAITS, WAITING, WAITING_OFFSET
from shared.store.hosts import NO_SOURCES
from shared.store.import_names import Texts, place
from shared.store.import_rows import ImportHosts, PageRows
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.store.source_times import PACKED_BYTES
from shared.store.twins import read_twins

_MOST_ROWS: Final = 8192
"""Of a COPY: some megabytes, which the processor keeps near. What the server has not taken yet,
libpq moves about in memory, again and again."""

_FEWEST_ROWS: Final = 2048
"""A COPY of fewer rows has those of the next shard, too."""

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

_OWN: Final = (
    *("shard", "page_id", "host_id", "importance", "max_age_days"),
    *("last_crawled_at", "last_attempt_at", "page_class"),
)
"""Columns in which new pages differ."""

_INSERT_HOSTS: Final = f"""
INSERT INTO hosts (shard, host_id, host, blocked_until, limit_updated_at, sources)
SELECT shard, host_id, host, '-infinity'::float8, '-infinity'::float8, '{NO_SOURCES}'
FROM unnest(%s::int2[], %s::int8[], %s::text[]) WITH ORDINALITY
    AS new (shard, host_id, host, place)
ORDER BY shard, host_id, place
ON CONFLICT DO NOTHING
"""
"""Of several with one id the first is the host."""


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

_IS_COPIED: Final = "new.crawled_at > page.last_crawled_at"
_IS_SETTLED: Final = f"{_IS_COPIED} AND page.last_signal_at <= new.crawled_at"
_NO_SIGNALS: Final = bytes(WAITING["pending"].itemsize)
_COPIED: Final = {
    "digest": (_IS_COPIED, "0"),
    "signals": (_IS_SETTLED, "0"),
    "history": (
        _IS_SETTLED,
        f"overlay(page.history PLACING '\\x{_NO_SIGNALS.hex()}' FROM {WAITING_OFFSET + 1})",
    ),
}
"""Column → whether a newer copy, which somebody holds now, changes it, and what it is then. The
next crawl has no digest to be compared with, and signals from before the copy wait for nothing;
where some came after it, all wait on."""


def _said_anew(column: str) -> str:
    """A column of a known page that somebody names again."""
    cases = [(f"page.status = {REMOVED}", _ANEW[column])]
    if column in _COPIED:
        cases.append(_COPIED[column])
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    return f"CASE {whens} ELSE page.{column} END"


_UPDATE_PAGES: Final = f"""
UPDATE pages AS page
    SET importance = new.importance,
        max_age_days = CASE WHEN new.max_age_days <> 'NaN' THEN new.max_age_days
                       ELSE {_unless_removed("max_age_days", "'infinity'")} END,
        last_crawled_at = greatest({_unless_removed("last_crawled_at")}, new.crawled_at),
        last_attempt_at = greatest({_unless_removed("last_attempt_at")}, new.crawled_at),
        {", ".join(f"{name} = {_said_anew(name)}" for name in _ANEW)},
        updated_at = greatest(page.updated_at, %s), status = {ACTIVE},
        page_class = CASE WHEN new.page_class >= 0 THEN new.page_class
                     WHEN page.status = {REMOVED} THEN 0 ELSE page.page_class END,
        failures = CASE WHEN page.status = {REMOVED} OR new.crawled_at >= page.last_attempt_at
                   THEN 0 ELSE page.failures END,
        misses = CASE WHEN page.status = {REMOVED} OR new.crawled_at >= page.last_attempt_at
                 THEN 0 ELSE page.misses END
    FROM unnest(%s::int8[], %s::float8[], %s::float8[], %s::float8[], %s::int2[])
        AS new (page_id, importance, max_age_days, crawled_at, page_class)
    WHERE page.shard = %s AND page.page_id = new.page_id
"""

_KNOWN: Final = "SELECT array_agg(page_id) FROM pages WHERE shard = %s AND page_id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class MetHosts:
    """The hosts that an import has met."""

    names: set[str] = field(default_factory=set)
    twins: set[str] = field(default_factory=set)
    """Those of them that are none (`shared.store.twins`)."""


def add_hosts(connection: psycopg.Connection, hosts: ImportHosts, met: MetHosts) -> list[int]:
    """Add the hosts that this import has not met yet.

    Args:
        connection: with the transaction of a batch.
        hosts: of it.
        met: those of batches before; more afterwards.

    Returns:
        places of those that are none, as they have the id of another host.
    """
    new = [place for place, host in enumerate(hosts.names) if host not in met.names]
    if new:
        names = [hosts.names[place] for place in new]
        given = hosts.shards[new], hosts.host_ids[new], names
        added = connection.execute(_INSERT_HOSTS, given).rowcount
        met.names.update(names)
        if added < len(new):  # some were there: their names are looked at
            met.twins.update(read_twins(connection, *given))
    if not met.twins:
        return []
    return [place for place, host in enumerate(hosts.names) if host in met.twins]


def add_pages(connection: psycopg.Connection, pages: PageRows, now: float) -> int:
    """Add pages, or set importance and bounds of known ones; how many are new.

    Args:
        connection: with the transaction of a batch.
        pages: of it.
        now: clock time, Unix seconds.
    """
    new = []
    for (shard, rows), known in zip(pages.by_shard(), _known(connection, pages), strict=True):
        if known is None:
            new.append(rows)
            continue
        is_known = np.isin(rows.page_ids, known)
        _update_pages(connection, shard, rows.take(np.flatnonzero(is_known)), now)
        new.append(rows.take(np.flatnonzero(~is_known)))
    for parts in _enough(new):
        _copy_pages(connection, parts, now)
        _copy_urls(connection, parts)
    return sum(rows.page_ids.size for rows in new)


def _known(connection: psycopg.Connection, pages: PageRows) -> list[NDArray[np.int64] | None]:
    """Of each shard, the ids of pages that are there; None: none is."""
    with connection.pipeline():
        asked = [
            connection.execute(_KNOWN, (shard, rows.page_ids), binary=True)
            for shard, rows in pages.by_shard()
        ]
    answers = [cursor.fetchone() for cursor in asked]
    return [row[0] if row else None for row in answers]


def _update_pages(connection: psycopg.Connection, shard: int, pages: PageRows, now: float) -> None:
    values = pages.importance, pages.max_age_days, pages.crawled_at, pages.page_class
    connection.execute(_UPDATE_PAGES, (now, pages.page_ids, *values, shard))


def _enough(parts: list[PageRows]) -> Iterator[list[PageRows]]:
    """Rows of one shard after the other, so many together as a COPY should have."""
    together: list[PageRows] = []
    for rows in parts:
        for begin in range(0, rows.page_ids.size, _MOST_ROWS):
            together.append(rows.part(begin, begin + _MOST_ROWS))
            if sum(one.page_ids.size for one in together) >= _FEWEST_ROWS:
                yield together
                together = []
    if together:
        yield together


def _copy_pages(connection: psycopg.Connection, parts: list[PageRows], now: float) -> None:
    """Send the rows of pages that are not there."""
    alike = {name: np.float64(now) for name in ("first_seen_at", "updated_at")}
    alike |= _NEW_PAGE | {"history": EMPTY}
    statement = f"COPY pages ({', '.join([*_OWN, *alike])}) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(COPY_BEGIN)
        for rows in parts:
            bounds = np.where(np.isnan(rows.max_age_days), np.inf, rows.max_age_days)
            own = (
                *(rows.shards, rows.page_ids, rows.host_ids, rows.importance, bounds),
                *(rows.crawled_at, rows.crawled_at, np.maximum(rows.page_class, NO_CLASS)),
            )
            copy.write(copy_rows([*own, *alike.values()]).data)
        copy.write(COPY_END)


def _copy_urls(connection: psycopg.Connection, parts: list[PageRows]) -> None:
    """Send their URLs."""
    statement = "COPY page_urls (shard, page_id, url) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(COPY_BEGIN)
        for rows in parts:
            before = copy_rows([rows.shards, rows.page_ids], fields=3)
            copy.write(_with_text(before, rows.urls).data)
        copy.write(COPY_END)


def _with_text(before: NDArray[np.uint8], texts: Texts) -> NDArray[np.uint8]:
    """Rows of a binary COPY with a text as their last field.

    Args:
        before: the fields in front of it; shape (rows, bytes).
        texts: one a row.
    """
    lengths = texts.lengths.astype(">i4").view(np.uint8).reshape(-1, 4)
    heads = np.hstack((before, lengths))
    count, width = heads.shape
    ends = np.cumsum(width + texts.lengths)
    rows = np.empty(int(ends[-1]) if count else 0, np.uint8)
    places = ends - texts.lengths
    begins = np.arange(count) * width
    place(heads.reshape(-1), begins, np.full(count, width), rows, places - width)
    place(texts.arena, texts.begins, texts.lengths, rows, places)
    return rows
