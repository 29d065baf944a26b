"""Pages as they come out of the store's tables: aggregates of columns, and what is made of them.

The server gathers each column of many rows into one array (see `gathering`); there is no Python
object for a page.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.binary import Blobs
from shared.store.columns import Integers, RemovedPages, SignalsBySource
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.store.source_times import unpack_source_times
from shared.store.sparse_arrays import SparseArray

END_OF_URL: Final = b"\n"
"""No canonical URL has one, but percent-encoded."""


class DamagedStore(Exception):
    """Tables that contradict each other; the text says which."""


PAGE_TYPES: Final[dict[str, type[np.generic]]] = {
    "page_id": np.int64,
    "host_id": np.int64,
    "importance": np.float64,
    "max_age_days": np.float64,
    "unsignalled_change_rate": np.float64,
    "signal_evidence": np.float64,
    "signal_rate": np.float64,
    "last_crawled_at": np.float64,
    "last_attempt_at": np.float64,
    "last_changed_at": np.float64,
    "last_signal_at": np.float64,
    "updated_at": np.float64,
    "urgent_at": np.float64,
    "failures": np.int32,
    "misses": np.int16,
    "digest": np.int64,
    "status": np.int16,
    "signal_count": np.int64,
    "page_class": np.int16,
}
"""The fields of `PageColumns`, by the columns of `pages`."""

LEARNING_TYPES: Final[dict[str, type[np.generic]]] = {
    "first_seen_at": np.float64,
    "signals": np.int32,
    "crawls": np.int32,
    "changes": np.int32,
}
"""Those of `LearningColumns`."""

_USUAL: Final[dict[str, tuple[str, float]]] = {
    "max_age_days": ("'infinity'", np.inf),
    "unsignalled_change_rate": ("'NaN'", np.nan),
    "signal_evidence": ("'NaN'", np.nan),
    "last_changed_at": ("'-infinity'", NEVER),
    "last_signal_at": ("'-infinity'", NEVER),
    "urgent_at": ("'-infinity'", NEVER),
    "failures": ("0", 0),
    "misses": ("0::int2", 0),
    "digest": ("0", 0),
    "status": (f"{ACTIVE}::int2", ACTIVE),
    "signal_count": ("0", 0),
    "page_class": ("0::int2", 0),
}
"""What most pages have in a column, for the server and for us. Not so of rates, which may be 0: the
server takes −0 for the same."""

_SAME: Final = {"last_attempt_at": "last_crawled_at"}
"""Columns in which most pages have what they have in another one."""

_IS_THERE: Final = f"status <> {REMOVED}"


def aggregates_of(
    types: dict[str, type[np.generic]], packed: str, several: str = "signal_times <> ''"
) -> list[str]:
    """What is gathered of some rows of `pages`, for `columns_of`.

    Args:
        types: the columns.
        packed: an expression of bytes as wide for every page.
        several: the rows whose signals by source are wanted.
    """
    gathered = [f"array_agg({name})" for name in types]
    gathered += [
        f"{aggregate} FILTER (WHERE {several})"
        for aggregate in ("array_agg(page_id)", "string_agg(signal_times, ''::bytea)")
    ]
    gathered += ["min(octet_length(history))", "max(octet_length(history))"]
    gathered.append(f"string_agg({packed}, ''::bytea)")
    return gathered


def sparse_aggregates_of(packed: str) -> list[str]:
    """What is gathered of some rows of `pages` but what is usual, for `pages_that_are_there`.

    Args:
        packed: as for `aggregates_of`.
    """
    usual = {name: in_server for name, (in_server, _) in _USUAL.items()} | _SAME
    plain = aggregates_of(PAGE_TYPES, packed, f"signal_times <> '' AND {_IS_THERE}")
    columns = [
        f"array_agg(nullif({name}, {usual[name]}))" if name in usual else aggregate
        for name, aggregate in zip(PAGE_TYPES, plain, strict=False)
    ]
    return [*columns, *plain[len(columns) :]]


def pages_that_are_there(part: tuple[Any, ...], removed: list[RemovedPages]) -> tuple[Any, ...]:
    """A part (`sparse_aggregates_of`) as `columns_of` takes it, without the removed pages.

    One pass over the table serves both: what a row takes is mostly to come by it.

    Args:
        part: what was gathered.
        removed: the part's removed pages are appended.
    """
    columns = dict(zip(PAGE_TYPES, part, strict=False))
    for name, column in columns.items():
        if isinstance(column, SparseArray):
            usual = columns[_SAME[name]] if name in _SAME else _USUAL[name][1]
            columns[name] = column.filled(usual)
    *others, packed = part[len(columns) :]
    is_there = columns["status"] != REMOVED
    if not is_there.all():
        gone = ~is_there
        removed.append(RemovedPages(columns["page_id"][gone], columns["updated_at"][gone]))
        packed = np.frombuffer(packed, f"V{len(packed) // is_there.size}")[is_there].tobytes()
        columns = {name: column[is_there] for name, column in columns.items()}
    return (*columns.values(), *others, packed)


def columns_of(
    shard: int, parts: list[tuple[Any, ...]], types: dict[str, type[np.generic]]
) -> tuple[list[Any], Blobs, SignalsBySource]:
    """The columns named in `types`, the packed bytes, and the signals by source; sorted by page id.

    Args:
        shard: for the error.
        parts: what was gathered of each part of the table (`aggregates_of`).
        types: the columns; the first is the page's id.

    Raises:
        DamagedStore: histories are not all as wide.
    """
    widths = sorted({width for part in parts for width in part[-3:-1]})
    if len(widths) > 1:
        raise DamagedStore(
            f"shard {shard}: histories of {widths} bytes side by side: it was written by several "
            "versions of Freshet"
        )
    by_column: list[Any] = [list(column) for column in zip(*parts, strict=True)]
    by_column = by_column or [[] for _ in range(len(types) + 5)]
    del parts
    columns = []
    for kind, column in zip(types.values(), by_column, strict=False):
        columns.append(joined_arrays(column, kind))
        column.clear()  # a shard may fill half of the memory: nothing is kept twice for long
    several, ages = by_column[len(types) : len(types) + 2]
    data = np.frombuffer(b"".join(by_column[-1]), np.uint8)
    count = columns[0].size
    width = data.size // max(count, 1)
    offsets = np.arange(count + 1, dtype=np.int64) * width
    if _rises(columns[0]):
        by_source = _by_source(several, ages, columns[0])
        return columns, Blobs(data, offsets), by_source
    order = np.argsort(columns[0])
    for index, column in enumerate(columns):
        columns[index] = column[order]
    by_source = _by_source(several, ages, columns[0])
    return columns, Blobs(data.view(f"V{width}")[order].view(np.uint8), offsets), by_source


def _by_source(
    several: list[Any], packed: list[bytes | None], page_ids: Integers
) -> SignalsBySource:
    """Signals by source of some pages, among all, whose ids rise."""
    rows = np.searchsorted(
        page_ids, joined_arrays([ids for ids in several if ids is not None], np.int64)
    )
    ages = unpack_source_times(b"".join(part for part in packed if part is not None))
    order = np.argsort(rows)
    return SignalsBySource(rows[order], ages[order])


def joined_arrays(parts: list[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    """One array of several, which may be none."""
    return np.concatenate([np.empty(0, kind), *parts])


def _rises(ids: Integers) -> bool:
    return bool((ids[1:] > ids[:-1]).all())


def chosen_urls(
    shard: int, stored_ids: Integers, stored: NDArray[np.uint8], page_ids: Integers
) -> Blobs:
    """The URLs of some pages, among those stored.

    Args:
        shard: for the error.
        stored_ids: of pages, in any order; shape (stored,).
        stored: their URLs, each with an end of line.
        page_ids: those wanted, rising.

    Raises:
        DamagedStore: a page has none, or a URL has an end of line in it.
    """
    ends = np.empty(stored_ids.size, np.int64)
    if _find_all(stored, END_OF_URL[0], ends) != ends.size:
        raise DamagedStore(f"shard {shard}: a URL in page_urls has an end of line in it")
    chosen = _places(stored_ids, page_ids)
    if chosen is None:
        raise DamagedStore(f"shard {shard}: pages have no row in page_urls")
    lengths = np.diff(ends, prepend=-1) - 1
    offsets = np.zeros(page_ids.size + 1, np.int64)
    np.cumsum(lengths[chosen], out=offsets[1:])
    arena = np.empty(offsets[-1], np.uint8)
    _copy_strings(stored, (ends - lengths)[chosen], offsets, arena)
    return Blobs(arena, offsets)


def _places(stored: Integers, wanted: Integers) -> Integers | None:
    """Where each of the rising `wanted` stands in `stored`; None: one does not."""
    order = np.argsort(stored)
    ordered = stored[order]
    # Both rise, so the search goes through the memory once from end to end.
    places = np.searchsorted(ordered, wanted)
    if places.size and (places[-1] == order.size or not np.array_equal(ordered[places], wanted)):
        return None
    return order[places]


@compiled
def _find_all(data: NDArray[np.uint8], wanted: int, places: Integers) -> int:
    """Note where a byte stands, as far as there is room; how many times there are."""
    count = 0
    for place in range(data.size):
        if data[place] == wanted:
            if count < places.size:
                places[count] = place
            count += 1
    return count


@compiled
def _copy_strings(
    source: NDArray[np.uint8], begins: Integers, offsets: Integers, arena: NDArray[np.uint8]
) -> None:
    for index in range(begins.size):
        # With unsigned places nothing is checked for a negative one: whole words are copied.
        begin, start = np.uint64(begins[index]), np.uint64(offsets[index])
        for byte in range(np.uint64(offsets[index + 1]) - start):
            arena[start + np.uint64(byte)] = source[begin + np.uint64(byte)]
