"""Pages as they come out of the store's tables: aggregates of columns, and what is made of them.

The server gathers each column of many rows into one array (see `gathering`); there is no Python
object for a page.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.binary import Blobs
from shared.store.columns import Integers, SignalsBySource
from shared.store.directories import directories_of
from shared.store.page_lookup import UNKNOWN, PageLookup
from shared.store.reserved import reserved
from shared.store.row_threads import in_slices
from shared.store.source_times import unpack_source_times

END_OF_URL: Final = b"\n"
"""No canonical URL has one, but percent-encoded."""


_PARTS_AT_ONCE: Final = 16
"""Of URLs, that a thread looks up."""


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


def aggregates_of(types: dict[str, type[np.generic]], packed: str) -> list[str]:
    """What is gathered of some rows of `pages`, for `columns_of`.

    Args:
        types: the columns.
        packed: an expression of bytes as wide for every page.
    """
    gathered = [f"array_agg({name})" for name in types]
    gathered += [
        f"{aggregate} FILTER (WHERE signal_times <> '')"
        for aggregate in ("array_agg(page_id)", "string_agg(signal_times, ''::bytea)")
    ]
    gathered += ["min(octet_length(history))", "max(octet_length(history))"]
    gathered.append(f"string_agg({packed}, ''::bytea)")
    return gathered


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
    require_one_width(shard, [part[-3:-1] for part in parts])
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


def require_one_width(shard: int, found: Iterable[Iterable[int]]) -> None:
    """Raise `DamagedStore` unless histories are all as wide.

    Args:
        shard: for the error.
        found: their widths, the least and the greatest of each part.
    """
    widths = sorted({width for part in found for width in part})
    if len(widths) > 1:
        raise DamagedStore(
            f"shard {shard}: histories of {widths} bytes side by side: it was written by several "
            "versions of Freshet"
        )


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


class UrlsOfPart(NamedTuple):
    """URLs of some pages, among those of others."""

    page_ids: Integers
    begin: int
    """Where they begin among those of all."""
    ends: NDArray[np.int32]
    """Where each ends among those of the part: at its end of line."""
    directories: NDArray[np.uint16]
    """In which the pages lie (`shared.store.directories`)."""

    @classmethod
    def of(cls, shard: int, page_ids: Integers, urls: bytes | memoryview, begin: int = 0) -> Self:
        """Those of some pages, each with an end of line.

        Raises:
            DamagedStore: a URL has an end of line in it.
        """
        data = np.frombuffer(urls, np.uint8)
        ends = np.flatnonzero(data == END_OF_URL[0])
        if ends.size != page_ids.size:
            raise DamagedStore(f"shard {shard}: a URL in page_urls has an end of line in it")
        offsets = np.zeros(ends.size + 1, np.int64)
        np.add(ends, 1, out=offsets[1:])
        return cls(page_ids, begin, ends.astype(np.int32), directories_of(data, offsets))


class PlacedUrls(NamedTuple):
    """Where the URLs of pages are, among URLs in any order, some of which may be of no page."""

    arena: NDArray[np.uint8]
    """UTF-8 bytes."""
    begins: Integers
    """Where the URL of each page begins, in room for more pages."""
    lengths: NDArray[np.int32]
    """How long each is, in as much room."""
    directories: NDArray[np.uint16]
    """Of the pages (`shared.store.directories`); (pages,)."""

    @classmethod
    def of(cls, urls: Sequence[bytes]) -> Self:
        """Some, one after the other."""
        arena = np.frombuffer(b"".join(urls), np.uint8)
        offsets = np.cumsum([0, *map(len, urls)], dtype=np.int64)
        lengths = np.diff(offsets).astype(np.int32)
        return cls(arena, offsets[:-1], lengths, directories_of(arena, offsets))


def placed_urls(
    shard: int, parts: Sequence[UrlsOfPart], arena: NDArray[np.uint8], page_ids: Integers
) -> PlacedUrls:
    """Where the URLs of some pages are, among those stored.

    They stay where they are: a shard's URLs are a quarter of its memory.

    Args:
        shard: for the error.
        parts: of the URLs, which stand together; of pages in any order, some of which may not be
            wanted.
        arena: all of them, each with an end of line.
        page_ids: of the pages, rising.

    Raises:
        DamagedStore: a page has none.
    """
    count = page_ids.size
    urls = PlacedUrls(
        arena, reserved(count, np.int64), reserved(count, np.int32), np.empty(count, np.uint16)
    )
    lookup = PageLookup.of(page_ids)

    def place(some: slice) -> int:
        found = 0
        for part in parts[some]:
            rows = lookup.find_many(part.page_ids)
            found += _place(rows, part.ends, part.directories, part.begin, *urls[1:])
        return found

    if sum(in_slices(place, len(parts), _PARTS_AT_ONCE)) != count:
        raise DamagedStore(f"shard {shard}: pages have no row in page_urls")
    return urls


@compiled
def _place(
    rows: NDArray[np.int32],
    ends: NDArray[np.int32],
    of_part: NDArray[np.uint16],
    begin: int,
    begins: Integers,
    lengths: NDArray[np.int32],
    directories: NDArray[np.uint16],
) -> int:
    """Note where the URLs of a part begin, how long they are, and their directories, by the rows of
    their pages; how many have one."""
    found = start = 0
    for index in range(rows.size):
        row = rows[index]
        if row != UNKNOWN:
            begins[row] = begin + start
            lengths[row] = ends[index] - start
            directories[row] = of_part[index]
            found += 1
        start = ends[index] + 1
    return found
