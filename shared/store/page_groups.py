"""Pages as a scheduler reads them: what all of them have, and apart from it what few have.

To hand over a value takes the server thirty times as long as to see that it is the usual one. Most
pages have never failed, and are in no class; many were never crawled or signalled. So columns go in
groups, by what has happened to a page: a group is one string of bytes, of the pages that have
anything of it, and each says by its id which page it is about. Bytes cost the server half of what
arrays cost. It has no faster way to write several floats than as the ends of a line segment.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.columns import Integers, PageColumns, RemovedPages, SignalsBySource
from shared.store.gathering import Gathered
from shared.store.history import EMPTY, PACKED_BYTES, SOURCES, WAITING, WAITING_OFFSET
from shared.store.page_parts import PAGE_TYPES
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.store.prefetch import AHEAD, prefetch
from shared.store.row_threads import in_slices
from shared.store.source_times import PACKED_BYTES as SOURCE_TIMES_BYTES
from shared.store.source_times import unpack_source_times


class _Group(NamedTuple):
    """Columns that are sent together."""

    packed: str
    """An expression of bytes."""
    wire: np.dtype[Any]
    """What they are."""
    among: str = ""
    """Of which pages, a condition; empty: of all."""

    @property
    def aggregate(self) -> str:
        """What is gathered of some rows."""
        gathered = f"string_agg({self.packed}, ''::bytea)"
        return f"{gathered} FILTER (WHERE {self.among})" if self.among else gathered

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names, but for the page's id."""
        return (self.wire.names or ())[1:]

    def read(self, data: bytes | None) -> NDArray[Any]:
        """What was gathered."""
        return np.frombuffer(data or b"", self.wire)


def _group(packed: str, among: str, **columns: Any) -> _Group:
    wire: list[Any] = [("page_id", ">i8")]
    wire += [
        (name, *(kind if isinstance(kind, tuple) else (kind,))) for name, kind in columns.items()
    ]
    return _Group(f"int8send(page_id) || {packed}", np.dtype(wire), among)


_ALL: Final = _Group(
    "int8send(page_id) || int8send(host_id) || "
    "lseg_send(lseg(point(importance, last_crawled_at), point(updated_at, signal_rate)))",
    np.dtype(
        [
            ("page_id", ">i8"),
            ("host_id", ">i8"),
            ("importance", ">f8"),
            ("last_crawled_at", ">f8"),
            ("updated_at", ">f8"),
            ("signal_rate", ">f8"),
        ]
    ),
)
"""The rate of signals is 0 for most pages, but the server takes −0 for the same."""

_CRAWLED: Final = _group(
    "point_send(point(unsignalled_change_rate, last_changed_at)) || int8send(digest)",
    "unsignalled_change_rate <> 'NaN' OR last_changed_at <> '-infinity' OR digest <> 0",
    unsignalled_change_rate=">f8",
    last_changed_at=">f8",
    digest=">i8",
)

_SIGNALLED: Final = _group(
    "point_send(point(signal_evidence, last_signal_at)) || int8send(signal_count)",
    "last_signal_at <> '-infinity' OR signal_evidence <> 'NaN' OR signal_count <> 0",
    signal_evidence=">f8",
    last_signal_at=">f8",
    signal_count=">i8",
)

_SET_APART: Final = _group(
    "lseg_send(lseg(point(max_age_days, last_attempt_at), point(urgent_at, failures))) || "
    "int2send(misses) || int2send(status) || int2send(page_class)",
    "page_class <> 0 OR max_age_days <> 'infinity' OR last_attempt_at <> last_crawled_at "
    f"OR failures <> 0 OR urgent_at <> '-infinity' OR status <> {ACTIVE} OR misses <> 0",
    max_age_days=">f8",
    last_attempt_at=">f8",
    urgent_at=">f8",
    failures=">f8",
    misses=">i2",
    status=">i2",
    page_class=">i2",
)
"""By operators, by failures, or by somebody who asks for them at once."""

_WAITING: Final = _group(
    f"substring(history FROM {WAITING_OFFSET + 1} FOR {WAITING.itemsize})",
    f"history <> '\\x{EMPTY.hex()}'",
    pending=("<u2", (SOURCES,)),
    multiplier="<f4",
    last_source="u1",
)
"""`history.WAITING`."""

_SEVERAL: Final = _group("signal_times", "signal_times <> ''", ages=f"V{SOURCE_TIMES_BYTES}")

_APART: Final = (_CRAWLED, _SIGNALLED, _SET_APART, _WAITING, _SEVERAL)

_USUAL: Final = {
    "unsignalled_change_rate": np.nan,
    "last_changed_at": NEVER,
    "signal_evidence": np.nan,
    "last_signal_at": NEVER,
    "max_age_days": np.inf,
    "urgent_at": NEVER,
    "status": ACTIVE,
    "multiplier": 1.0,
}
"""What pages have in columns of groups that they are not in, where it is not 0. The last attempt of
such a page is its last crawl."""

_TYPES: Final[dict[str, Any]] = {
    **PAGE_TYPES,
    "pending": (np.uint16, (SOURCES,)),
    "multiplier": np.float32,
    "last_source": np.int8,
}

WIDTHS: Final = ["min(octet_length(history))", "max(octet_length(history))"]
"""For `page_parts.require_one_width`, where they are not all as this version writes them."""

GATHERED: Final = [
    *(group.aggregate for group in (_ALL, *_APART)),
    f"bit_or(octet_length(history) # {PACKED_BYTES})",
]
"""What is gathered of some rows of `pages`, for `GatheredPages.taken`. The last one is 0 where all
histories are as wide as this version writes them."""


class PagesOfPart(NamedTuple):
    """Pages of a part of the table, in its order, without removed ones."""

    begin: int
    """Where they begin among those of all parts."""
    apart: tuple[tuple[NDArray[np.int32], NDArray[Any]], ...]
    """For each of `_APART`: places of its pages among those of the part, and what they have."""
    has_other_widths: bool
    """Whether a history is not as wide as this version writes them."""


class Waiting(NamedTuple):
    """What waits of each page since its last crawl (`history.WAITING`)."""

    pending: NDArray[np.uint16]
    multipliers: NDArray[np.float32]
    last_sources: NDArray[np.int8]


class GatheredPages:
    """Pages of a table, part by part."""

    def __init__(self, table_bytes: int) -> None:
        """Begin without any.

        Args:
            table_bytes: of the table; more than what all pages have comes to.
        """
        self._everything = Gathered(table_bytes)
        self._removed = [RemovedPages.none()]

    def taken(self, part: tuple[Any, ...]) -> PagesOfPart:
        """Take a part of the table, in any thread; its removed pages are kept apart.

        One pass over the table serves both: what a row takes is mostly to come by it.

        Args:
            part: what was gathered (`GATHERED`).
        """
        everything, *others, widths = part
        rows = _ALL.read(everything)
        page_ids = rows["page_id"].astype(np.int64)
        apart = []
        for group, data in zip(_APART, others, strict=True):
            items = group.read(data)
            apart.append((_places_of(page_ids, items["page_id"].astype(np.int64)), items))
        places, items = apart[_APART.index(_SET_APART)]
        gone = places[items["status"] == REMOVED]
        if gone.size:
            times = rows["updated_at"][gone].astype(np.float64)
            self._removed.append(RemovedPages(page_ids[gone], times))
            is_there = np.ones(rows.size, np.bool_)
            is_there[gone] = False
            apart = [_chosen(*group, is_there) for group in apart]
            everything = rows[is_there].tobytes()
        begin = self._everything.add(everything) // _ALL.wire.itemsize
        return PagesOfPart(begin, tuple(apart), widths != 0)

    @property
    def removed(self) -> RemovedPages:
        """The removed pages."""
        page_ids = np.concatenate([part.page_ids for part in self._removed])
        times = np.concatenate([part.removed_at for part in self._removed])
        order = np.argsort(page_ids)
        return RemovedPages(page_ids[order], times[order])

    def by_id(self, parts: list[PagesOfPart]) -> tuple[PageColumns, Waiting, SignalsBySource]:
        """The columns of pages, what waits of each, and the signals by source; sorted by page id.

        Args:
            parts: of the table, all of them; none is left, nor what they have here.
        """
        rows = self._everything.everything.view(_ALL.wire)
        order = np.argsort(rows["page_id"].astype(np.int64))
        columns = _columns_of_all(rows, order)
        # A shard may fill half of the memory: nothing is kept twice for long.
        self._everything = Gathered(0)
        del rows
        rows_of = np.empty(order.size, np.int32)
        rows_of[order] = np.arange(order.size, dtype=np.int32)
        del order
        _add_usual(columns, parts)
        several, ages = [np.empty(0, np.int32)], [b""]
        while parts:
            begin, apart, _ = parts.pop()
            for group, (places, items) in zip(_APART, apart, strict=True):
                if not places.size:
                    continue
                found = rows_of[places + np.int32(begin)]
                if group is _SEVERAL:
                    several.append(found)
                    ages.append(items["ages"].tobytes())
                else:
                    for name in group.columns:
                        columns[name][found] = items[name]
        waiting = Waiting(*(columns[name] for name in _WAITING.columns))
        by_source = _by_source(np.concatenate(several), b"".join(ages))
        return PageColumns(*(columns[name] for name in PAGE_TYPES)), waiting, by_source


def sent(page_ids: Integers) -> tuple[Any, ...]:
    """A part of the table as the server sends it: pages, the first of which is in all groups."""
    rows = np.zeros(page_ids.size, _ALL.wire)
    rows["page_id"] = page_ids
    apart = [np.zeros(1, group.wire) for group in _APART]
    for items in apart:
        items["page_id"] = page_ids[0]
    return rows.tobytes(), *(items.tobytes() for items in apart), 0


def _chosen(
    places: NDArray[np.int32], items: NDArray[Any], which: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """What is left of a group that is apart, if only some pages of the part are."""
    is_left = which[places]
    numbers = np.cumsum(which, dtype=np.int32) - np.int32(1)
    return numbers[places[is_left]], items[is_left]


def _columns_of_all(rows: NDArray[Any], order: Integers) -> dict[str, NDArray[Any]]:
    """The columns of `_ALL`, in an order."""
    names = _ALL.wire.names or ()
    columns = np.empty((len(names), order.size), np.int64)
    words = rows.view(np.uint64).reshape(-1, len(names))
    list(in_slices(lambda part: _take(words, order, part.start, part.stop, columns), order.size))
    return {name: columns[place].view(PAGE_TYPES[name]) for place, name in enumerate(names)}


def _add_usual(columns: dict[str, NDArray[Any]], parts: Sequence[PagesOfPart]) -> None:
    """Add the columns of the groups that are apart, as if no page were in any. Of a group without
    pages a column is a single number, which all pages see."""
    count = columns["page_id"].size
    for which, group in enumerate(_APART):
        is_empty = not any(part.apart[which][0].size for part in parts)
        for name in group.columns if group is not _SEVERAL else ():
            usual = np.full(1, _USUAL.get(name, 0), _TYPES[name])
            alike = np.broadcast_to(usual, (count, *usual.shape[1:]))
            columns[name] = alike if is_empty else alike.copy()
        if group is _SET_APART:
            at = columns["last_crawled_at"]
            columns["last_attempt_at"] = at if is_empty else at.copy()


def _by_source(rows: NDArray[np.int32], packed: bytes) -> SignalsBySource:
    order = np.argsort(rows)
    return SignalsBySource(rows[order].astype(np.int64), unpack_source_times(packed)[order])


@compiled
def _places_of(ids: Integers, some: Integers) -> NDArray[np.int32]:
    """Where some of the ids, in their order, stand among all."""
    places = np.empty(some.size, np.int32)
    place = 0
    for index in range(some.size):
        while place < ids.size and ids[place] != some[index]:
            place += 1
        if place == ids.size:
            raise ValueError("what was gathered of some rows is not in the order of all")
        places[index] = place
    return places


@compiled
def _take(
    words: NDArray[np.uint64], order: Integers, begin: int, end: int, columns: NDArray[np.int64]
) -> None:
    """Write rows of big-endian words to columns, in an order, from one place to another."""
    for place in range(begin, end):
        if place + AHEAD < end:
            prefetch(words, order[place + AHEAD])
        for column in range(words.shape[1]):
            columns[column, place] = _swapped(words[order[place], column])


@compiled
def _swapped(word: int) -> int:
    """A word with its bytes the other way round."""
    value = np.uint64(word)
    pairs = np.uint64(0x00FF00FF00FF00FF)
    value = ((value >> np.uint64(8)) & pairs) | ((value & pairs) << np.uint64(8))
    fours = np.uint64(0x0000FFFF0000FFFF)
    value = ((value >> np.uint64(16)) & fours) | ((value & fours) << np.uint64(16))
    return np.int64((value >> np.uint64(32)) | (value << np.uint64(32)))  # type: ignore[return-value]
