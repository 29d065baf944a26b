"""A shard as it stands at one moment: its pages, hosts, and the positions that they reflect.

A million pages take about a second (see `gathering`); there is no Python object for a page, but for
its host's name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.layout import Layout
from shared.policy.compiled import compiled
from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE, INITIAL_SHAPE
from shared.store.binary import Blobs
from shared.store.columns import (
    HOST_RULES,
    HostColumns,
    Integers,
    LearningColumns,
    PageColumns,
    RemovedPages,
    SignalsBySource,
    host_rules,
)
from shared.store.erasing import Erased, read_erased
from shared.store.gathering import TableReader, reading
from shared.store.history import WAITING, WAITING_OFFSET, Rings, unpack
from shared.store.host_factors import unpack_factors
from shared.store.hosts import INITIAL, HostLearning, unpack_hosts, unpack_sources
from shared.store.imports_log import NO_IMPORT, read_last_import
from shared.store.layout import read_layout
from shared.store.owners import NO_OWNER, Announcing, read_owner
from shared.store.page_classes import read_classes
from shared.store.page_status import REMOVED
from shared.store.positions import ESTIMATOR, Positions, read_positions
from shared.store.removals import joined
from shared.store.source_times import unpack_source_times

_END_OF_URL: Final = b"\n"
"""No canonical URL has one, but percent-encoded."""

_WAITING: Final = f"substring(history FROM {WAITING_OFFSET + 1} FOR {WAITING.itemsize})"


class DamagedStore(Exception):
    """Tables that contradict each other; the text says which."""


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """What a scheduler needs of a shard: the pages but removed ones."""

    shard: int
    pages: PageColumns
    pending: NDArray[np.uint16]
    """Signals since the last crawl, by source slot; shape (pages, SOURCES)."""
    multipliers: NDArray[np.float32]
    """Burst multipliers that hold since the last crawl; (pages,)."""
    urls: Blobs
    """UTF-8 bytes of page i: urls.arena[urls.offsets[i]:urls.offsets[i + 1]]."""
    hosts: HostColumns
    positions: Positions
    """(topic, partition) → next offset: what comes from there on is not in this snapshot."""
    last_sources: NDArray[np.int8]
    """Slots of the latest signals; (pages,)."""
    by_source: SignalsBySource
    layout: Layout
    """How the hosts were shared out: the shard's owner and its schedulers go by it."""
    epoch: int = NO_OWNER
    """Of the shard's owner: what older ones announced is in this snapshot (`owners`)."""
    imported: int = NO_IMPORT
    """Number of the last import that is in this snapshot (`imports_log`)."""
    removed: RemovedPages = field(default_factory=RemovedPages.none)
    """What is not among the pages, erased ones too: who reads updates again goes by it."""
    erased_hosts: dict[int, float] = field(default_factory=dict)
    """Host id → when it was erased, Unix seconds."""
    classes: dict[int, str] = field(default_factory=dict)
    """Names of the classes of pages, by number."""


@dataclass(frozen=True, slots=True)
class LearningSnapshot:
    """What the estimator needs of a shard: all pages, removed and gone ones too."""

    shard: int
    pages: PageColumns
    learning: LearningColumns
    histories: Rings
    hosts: HostColumns
    positions: Positions
    by_source: SignalsBySource
    announcing: Announcing
    """What the last commit was about to announce."""
    urls: Blobs
    erased: Erased
    """What is not there any more."""
    layout: Layout
    classes: dict[int, str]
    """As in `ShardSnapshot`, and so are `urls` and `layout`."""


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

_LEARNING_TYPES: Final[dict[str, type[np.generic]]] = {
    "first_seen_at": np.float64,
    "signals": np.int32,
    "crawls": np.int32,
    "changes": np.int32,
}


def load_shard(
    database_url: str, shard: int, progress: Callable[[], None] = lambda: None
) -> ShardSnapshot:
    """The pages of a shard but removed ones, with URLs, hosts and the positions that they reflect.

    Everything is of one moment (a REPEATABLE READ transaction). `progress` is called all the while,
    in any thread.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
        DamagedStore: a page has no URL.
    """
    with reading(database_url, progress) as reader:
        layout = _layout(reader, shard)
        columns, packed, by_source = _pages(
            reader, shard, PAGE_TYPES, f"status <> {REMOVED}", _WAITING
        )
        pages = PageColumns(*columns)
        removed = _removed(reader, shard)
        erased = read_erased(reader.connection, shard)
        urls = _urls(reader, shard, pages.page_ids)
        hosts = _hosts(reader.connection, shard)
        positions = read_positions(reader.connection, ESTIMATOR, [shard])
        epoch, _ = read_owner(reader.connection, shard)
        imported = read_last_import(reader.connection, shard)
        classes = read_classes(reader.connection, shard)
    waiting = packed.arena.view(WAITING)
    return ShardSnapshot(
        shard,
        pages,
        waiting["pending"],
        waiting["multiplier"],
        urls,
        hosts,
        positions,
        waiting["last_source"].astype(np.int8),
        by_source,
        layout,
        epoch,
        imported,
        joined(removed, erased.pages),
        erased.hosts,
        classes,
    )


def load_for_learning(database_url: str, shard: int) -> LearningSnapshot:
    """All pages of a shard with their crawl histories (see `load_shard`)."""
    with reading(database_url) as reader:
        layout = _layout(reader, shard)
        columns, histories, by_source = _pages(
            reader, shard, PAGE_TYPES | _LEARNING_TYPES, "true", "history"
        )
        urls = _urls(reader, shard, columns[0])
        hosts = _hosts(reader.connection, shard)
        positions = read_positions(reader.connection, ESTIMATOR, [shard])
        _, announcing = read_owner(reader.connection, shard)
        erased = read_erased(reader.connection, shard)
        classes = read_classes(reader.connection, shard)
    split = len(PAGE_TYPES)
    return LearningSnapshot(
        shard,
        PageColumns(*columns[:split]),
        LearningColumns(*columns[split:]),
        unpack(histories),
        hosts,
        positions,
        by_source,
        announcing,
        urls,
        erased,
        layout,
        classes,
    )


def _layout(reader: TableReader, shard: int) -> Layout:
    """The layout; a shard that can have hosts must have its tables, others need none."""
    layout = read_layout(reader.connection)
    if layout.modulus_of(shard):
        reader.connection.execute("SELECT %s::regclass", (f"pages_{shard}",))
    return layout


def _pages(
    reader: TableReader,
    shard: int,
    types: dict[str, type[np.generic]],
    condition: str,
    packed: str,
) -> tuple[list[Any], Blobs, SignalsBySource]:
    """The columns named in `types`, an expression of bytes as wide for every page, and the signals
    by source; sorted by page id."""
    gathered = [f"array_agg({name})" for name in types]
    gathered += [
        f"{aggregate} FILTER (WHERE signal_times <> '')"
        for aggregate in ("array_agg(page_id)", "string_agg(signal_times, ''::bytea)")
    ]
    gathered += ["min(octet_length(history))", "max(octet_length(history))"]
    gathered.append(f"string_agg({packed}, ''::bytea)")
    parts = reader.gather(f"pages_{shard}", gathered, condition)
    widths = sorted({width for part in parts for width in part[-3:-1]})
    if len(widths) > 1:
        raise DamagedStore(
            f"shard {shard}: histories of {widths} bytes side by side: it was written by several "
            "versions of Freshet"
        )
    by_column: list[Any] = [list(column) for column in zip(*parts, strict=True)]
    by_column = by_column or [[] for _ in gathered]
    del parts
    columns = []
    for kind, column in zip(types.values(), by_column, strict=False):
        columns.append(_joined(column, kind))
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


def _removed(reader: TableReader, shard: int) -> RemovedPages:
    gathered = ["array_agg(page_id)", "array_agg(updated_at)"]
    parts = reader.gather(f"pages_{shard}", gathered, f"status = {REMOVED}")
    page_ids = _joined([part[0] for part in parts], np.int64)
    order = np.argsort(page_ids)
    return RemovedPages(page_ids[order], _joined([part[1] for part in parts], np.float64)[order])


def _by_source(
    several: list[Any], packed: list[bytes | None], page_ids: Integers
) -> SignalsBySource:
    """Signals by source of some pages, among all, whose ids rise."""
    rows = np.searchsorted(page_ids, _joined([ids for ids in several if ids is not None], np.int64))
    ages = unpack_source_times(b"".join(part for part in packed if part is not None))
    order = np.argsort(rows)
    return SignalsBySource(rows[order], ages[order])


def _joined(parts: list[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts])


def _rises(ids: Integers) -> bool:
    return bool((ids[1:] > ids[:-1]).all())


def _urls(reader: TableReader, shard: int, page_ids: Integers) -> Blobs:
    """The URLs of pages, in the order of the sorted `page_ids`."""
    gathered = ["array_agg(page_id)", "convert_to(string_agg(url, E'\\n'), 'UTF8')"]
    parts = reader.gather(f"page_urls_{shard}", gathered)
    stored_ids = _joined([part[0] for part in parts], np.int64)
    stored = np.frombuffer(b"".join([part[1] + _END_OF_URL for part in parts]), np.uint8)
    del parts
    return chosen_urls(shard, stored_ids, stored, page_ids)


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
    if _find_all(stored, _END_OF_URL[0], ends) != ends.size:
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


def _hosts(connection: psycopg.Connection, shard: int) -> HostColumns:
    row = connection.execute(
        "SELECT array_agg(host_id), array_agg(host), "
        "array_agg(coalesce(max_crawls_per_second, 'NaN')), array_agg(blocked_until), "
        "array_agg(coalesce(crawl_delay, 'NaN')), array_agg(asked_until), array_agg(failures), "
        "array_agg(failed_at), array_agg(coalesce(max_open_requests, 0)), "
        "array_agg(coalesce(named_group, '')), array_agg(named_since), "
        "array_agg(limit_updated_at), array_agg(coalesce(prior_shape, %s)), "
        "array_agg(coalesce(prior_rate, %s)), array_agg(sources), "
        "string_agg(coalesce(learning, %s), ''::bytea), array_agg(factors) "
        "FROM (SELECT * FROM hosts WHERE shard = %s ORDER BY host_id) AS host",
        (INITIAL_SHAPE, INITIAL_SHAPE / INITIAL_CHANGE_RATE, INITIAL, shard),
        binary=True,
    ).fetchone()
    if row is None or row[0] is None:
        nothing = np.empty(0)
        initial = HostLearning.initial(0)
        return HostColumns(
            np.empty(0, np.int64), [], host_rules(0), nothing, nothing, nothing, [], initial, []
        )
    host_ids, names = row[:2]
    rules = host_rules(len(names))
    last_rule = 2 + len(HOST_RULES.names or ())
    for name, column in zip(HOST_RULES.names or (), row[2:last_rule], strict=True):
        rules[name] = column
    limit_updated_at, shape, rate, sources, packed, factors = row[last_rule:]
    return HostColumns(
        host_ids,
        names,
        rules,
        limit_updated_at,
        shape,
        rate,
        [unpack_sources(of_host) for of_host in sources],
        unpack_hosts(packed, len(names)),
        [unpack_factors(of_host) for of_host in factors],
    )
