"""A shard as it stands at one moment: its pages, hosts, and the positions that they reflect.

A million pages take about a second (see `gathering`); there is no Python object for a page, but for
its host's name.
"""

import math
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.layout import Layout
from shared.store.columns import (
    HostColumns,
    PageColumns,
    RemovedPages,
    SignalsBySource,
    UnansweredPages,
)
from shared.store.erasing import Erased, read_erased
from shared.store.gathering import TableReader, reading
from shared.store.host_reading import read_hosts, warm_hosts
from shared.store.imports_log import read_last_import
from shared.store.last_imports import NO_IMPORT, LastImport
from shared.store.layout import read_layout
from shared.store.learned_pages import (
    LearnedPages,
    StoredUrls,
    about_records,
    all_pages,
    most_pages_of,
)
from shared.store.owners import NO_OWNER, Announcing, read_owner
from shared.store.page_classes import read_classes, read_unused_classes
from shared.store.page_groups import (
    GATHERED,
    WIDTHS,
    GatheredPages,
    PagesOfPart,
)
from shared.store.page_parts import PlacedUrls, require_one_width
from shared.store.positions import ESTIMATOR, Positions, read_positions
from shared.store.unanswered import read_unanswered

MANY_CLASSES: Final = 127
"""With more of them in a shard it is worth a look at all of its pages to know which are used."""


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """What a scheduler needs of a shard: the pages but removed ones."""

    shard: int
    pages: PageColumns
    pending: NDArray[np.uint16]
    """Signals since the last crawl, by source slot; shape (pages, SOURCES)."""
    multipliers: NDArray[np.float32]
    """Burst multipliers that hold since the last crawl; (pages,)."""
    urls: PlacedUrls
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
    imported: LastImport = NO_IMPORT
    """The last import that is in this snapshot (`imports_log`)."""
    removed: RemovedPages = field(default_factory=RemovedPages.none)
    """What is not among the pages: who reads updates again goes by it."""
    erased: RemovedPages = field(default_factory=RemovedPages.none)
    """The same, of which nothing else is kept."""
    erased_hosts: dict[int, float] = field(default_factory=dict)
    """Host id → when it was erased, Unix seconds."""
    classes: dict[int, str] = field(default_factory=dict)
    """Names of the classes of pages, by number."""
    unanswered: UnansweredPages = field(default_factory=UnansweredPages.none)
    """What is noted of pages that nobody answers, in any order; also of some that are not here."""


@dataclass(frozen=True, slots=True)
class LearningSnapshot(LearnedPages):
    """What the estimator needs of a shard: all of its pages, if they are few enough, or none."""

    shard: int
    is_whole: bool
    """Whether the pages are all that there are."""
    records: int
    """Crawl records kept of all pages; about, where those are too many."""
    hosts: HostColumns
    positions: Positions
    announcing: Announcing
    """What the last commit was about to announce."""
    erased: Erased
    """What is not there any more."""
    layout: Layout
    classes: dict[int, str]
    """As in `ShardSnapshot`, and so is `layout`."""
    unused_classes: Collection[int] = ()
    """Numbers of those that no page has, where there are many; else nobody has looked."""


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
        gathered, parts = _pages(reader, shard)
        with ThreadPoolExecutor(2, "beside") as pool:
            # While the server sends the URLs.
            sorting = pool.submit(gathered.by_id, parts)
            reading_hosts = pool.submit(read_hosts, reader.connection, shard, progress)
            with _unless_failed(reading_hosts):
                urls = StoredUrls(reader, shard)
                erased = read_erased(reader.connection, shard)
                positions = read_positions(reader.connection, ESTIMATOR, [shard])
                epoch, _ = read_owner(reader.connection, shard)
                imported = read_last_import(reader.connection, shard)
                classes = read_classes(reader.connection, shard)
                unanswered = read_unanswered(reader.connection, shard)
            hosts = reading_hosts.result()
            pages, waiting, by_source = sorting.result()
    return ShardSnapshot(
        shard,
        pages,
        waiting.pending,
        waiting.multipliers,
        urls.of(pages.page_ids),
        hosts,
        positions,
        waiting.last_sources,
        by_source,
        layout,
        epoch,
        imported,
        gathered.removed,
        erased.pages,
        erased.hosts,
        classes,
        unanswered,
    )


@contextmanager
def _unless_failed(beside: Future[Any]) -> Iterator[None]:
    """Where a statement beside has failed, all that follow in the transaction do, and say nothing
    of why: its own error is raised."""
    try:
        yield
    except psycopg.errors.InFailedSqlTransaction:
        beside.result()
        raise


def load_for_learning(
    database_url: str,
    shard: int,
    most_pages: float = math.inf,
    among: Collection[int] = (),
) -> LearningSnapshot:
    """A shard's hosts, and all of its pages with their crawl histories (see `load_shard`).

    Args:
        database_url: libpq URL.
        shard: which.
        most_pages: where there may be more, none are loaded: they are read as they are named
            (`learned_pages.read_pages`).
        among: the shards whose pages count together with those of this one.
    """
    with reading(database_url) as reader:
        layout = _layout(reader, shard)
        # One to which a growth has not come yet has no tables: all of its pages are here.
        is_whole = (
            not layout.modulus_of(shard)
            or most_pages_of(reader.connection, {shard, *among}) <= most_pages
        )
        pages = all_pages(reader, shard) if is_whole else LearnedPages.none()
        records = int(pages.histories.seen.sum())
        if not is_whole:
            records = about_records(reader.connection, shard)
        warm_hosts(reader.connection, shard)
        hosts = read_hosts(reader.connection, shard)
        positions = read_positions(reader.connection, ESTIMATOR, [shard])
        _, announcing = read_owner(reader.connection, shard)
        erased = read_erased(reader.connection, shard)
        classes = read_classes(reader.connection, shard)
        unused: set[int] = set()
        if len(classes) > MANY_CLASSES:
            unused = read_unused_classes(reader.connection, shard)
    return LearningSnapshot(
        *pages.parts,
        shard,
        is_whole,
        records,
        hosts,
        positions,
        announcing,
        erased,
        layout,
        classes,
        unused,
    )


def _layout(reader: TableReader, shard: int) -> Layout:
    """The layout; a shard that can have hosts must have its tables, others need none."""
    layout = read_layout(reader.connection)
    if layout.modulus_of(shard):
        reader.connection.execute("SELECT %s::regclass", (f"pages_{shard}",))
    return layout


def _pages(reader: TableReader, shard: int) -> tuple[GatheredPages, list[PagesOfPart]]:
    """The pages of a shard, part by part."""
    table = f"pages_{shard}"
    pages = GatheredPages(reader.bytes_of(table) or 0)
    parts: list[Any] = reader.gather(table, GATHERED, taken=pages.taken)
    if any(part.has_other_widths for part in parts):
        require_one_width(shard, reader.gather(table, WIDTHS))
    return pages, parts
