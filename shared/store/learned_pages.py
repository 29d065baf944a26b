"""Pages as the estimator needs them: those of a whole shard, or some by their ids.

A row by its id takes the server and the client about ten microseconds together. All of a shard's
rows are gathered (see `gathering`), for a refit some hosts at a time: what is held at once does not
grow with the pages of a shard, but with those of its largest host.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any, Final, Self

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.binary import Blobs
from shared.store.columns import Integers, LearningColumns, PageColumns, SignalsBySource
from shared.store.gathering import Gathered, TableReader, reading
from shared.store.history import Rings, unpack
from shared.store.owners import NO_OWNER, Owner
from shared.store.page_parts import (
    END_OF_URL,
    LEARNING_TYPES,
    PAGE_TYPES,
    DamagedStore,
    PlacedUrls,
    UrlsOfPart,
    aggregates_of,
    columns_of,
    joined_arrays,
    placed_urls,
)

LEAST_ROW_BYTES: Final = 500
"""Of `pages`, that a row takes in the table."""

PAGES_AT_ONCE: Final = 100_000
"""That a refit looks at, but where a single host has more."""

_SAMPLED_BLOCKS: Final = 64
"""Of a table, by which its crawl records are estimated."""

_BLOCK_BYTES: Final = 8192

_RECORDS: Final = "get_byte(history, 1)"
"""How many crawl records a packed history has."""

_IS_CRAWLED: Final = f"{_RECORDS} > 0"

BY_ID_COSTS: Final = 4
"""To read a URL by its page's id, over what one of all that are read costs."""

_TYPES: Final = PAGE_TYPES | LEARNING_TYPES

_OWNER: Final = "(SELECT epoch, holder FROM shard_owners WHERE shard = {shard}) AS owner"

_OF_HOST: Final = (
    f"SELECT * FROM {_OWNER}, "
    "(SELECT array_agg(page_id) FROM pages_{shard} WHERE host_id = %s) AS page"
)

_URL_BYTES: Final = "convert_to(string_agg(url, E'\\n'), 'UTF8')"

_URLS: Final = ("array_agg(page_id)", _URL_BYTES)

_AMONG: Final = "WHERE shard = {shard} AND page_id = ANY(%(ids)s)"

_BY_ID: Final = f"SELECT * FROM {_OWNER}, (SELECT {{pages}} FROM pages_{{shard}} {_AMONG}) AS page"
"""One statement, so all of it is of one moment: until then nobody else wrote the shard."""

_URLS_AMONG: Final = f"SELECT {', '.join(_URLS)} FROM page_urls_{{shard}} {_AMONG}"


@dataclass(frozen=True, slots=True)
class LearnedPages:
    """Pages in rising order of their ids, removed and gone ones too."""

    pages: PageColumns
    learning: LearningColumns
    histories: Rings
    by_source: SignalsBySource
    directories: NDArray[np.uint16]
    """In which they lie (`shared.store.directories`)."""

    @property
    def parts(
        self,
    ) -> tuple[PageColumns, LearningColumns, Rings, SignalsBySource, NDArray[np.uint16]]:
        """All of it."""
        return self.pages, self.learning, self.histories, self.by_source, self.directories

    def chosen(self, which: NDArray[np.bool_]) -> Self:
        """Some of them."""
        pages, learning, histories, by_source, directories = self.parts
        has_entry = which[by_source.rows]
        rings: Any = (column[which] for column in histories)
        return type(self)(
            PageColumns(*(getattr(pages, part.name)[which] for part in fields(pages))),
            LearningColumns(*(getattr(learning, part.name)[which] for part in fields(learning))),
            Rings(*rings),
            SignalsBySource(
                np.cumsum(which)[by_source.rows[has_entry]] - 1, by_source.ages[has_entry]
            ),
            directories[which],
        )

    @classmethod
    def none(cls) -> Self:
        """No page."""
        columns, packed, by_source = columns_of(0, [], _TYPES)
        return cls.of(columns, packed, by_source, np.empty(0, np.uint16))

    @classmethod
    def of(
        cls,
        columns: list[Any],
        packed: Blobs,
        by_source: SignalsBySource,
        directories: NDArray[np.uint16],
    ) -> Self:
        """Out of what the tables have (`page_parts.columns_of`)."""
        split = len(PAGE_TYPES)
        return cls(
            PageColumns(*columns[:split]),
            LearningColumns(*columns[split:]),
            unpack(packed),
            by_source,
            directories,
        )


def read_pages(
    connection: psycopg.Connection,
    shard: int,
    owner: Owner,
    page_ids: Integers,
    directories: NDArray[np.uint16] | None = None,
    *,
    is_ahead: bool = False,
) -> LearnedPages:
    """Those of some pages of a shard that are there.

    What an owner before us, or after us, may write would be of other positions than ours: a page
    that a successor has erased would be one that nobody has ever added.

    Args:
        connection: without a transaction.
        shard: which has tables.
        owner: ourselves.
        page_ids: each once; rising, if their directories are given.
        directories: of these pages; None: their URLs are read for them, at half as much again.
        is_ahead: how the session reads now (`shared.store.read_ahead`).

    Raises:
        Superseded: the shard is another owner's.
        psycopg.OperationalError: the server went away.
        DamagedStore: a page has no URL.
        BadHistory: another version of Freshet has written one.
    """
    statement = _by_id(shard, with_urls=directories is None, is_ahead=is_ahead)
    row = _read_alone(connection, statement, {"ids": np.sort(page_ids)}, shard, owner)
    if row[0] is None:
        return LearnedPages.none()
    if directories is not None:
        columns, packed, by_source = columns_of(shard, [row], _TYPES)
        of_found = directories[np.searchsorted(page_ids, columns[0])]
        return LearnedPages.of(columns, packed, by_source, of_found)
    found, urls = row[: -len(_URLS)], row[-len(_URLS) :]
    columns, packed, by_source = columns_of(shard, [found], _TYPES)
    return LearnedPages.of(columns, packed, by_source, _directories_among(shard, urls, columns[0]))


@cache
def _by_id(shard: int, *, with_urls: bool, is_ahead: bool) -> str:
    statement = f"{_BY_ID}, ({_URLS_AMONG}) AS url" if with_urls else _BY_ID
    of_shard = statement.format(shard=shard, pages=", ".join(aggregates_of(_TYPES, "history")))
    return f"{of_shard} -- read ahead" if is_ahead else of_shard


def pages_of_host(
    connection: psycopg.Connection, shard: int, owner: Owner, host_id: int
) -> Integers:
    """Ids of the pages of a host; looks through all pages of its shard.

    Args:
        connection: without a transaction.
        shard: which has tables.
        owner: ourselves.
        host_id: of the host.

    Raises:
        Superseded: the shard is another owner's.
        psycopg.OperationalError: the server went away.
    """
    [found] = _read_alone(connection, _OF_HOST.format(shard=shard), (host_id,), shard, owner)
    return np.empty(0, np.int64) if found is None else np.asarray(found)


def _read_alone(
    connection: psycopg.Connection, statement: str, given: Any, shard: int, owner: Owner
) -> Any:
    """The row of a statement that is a transaction of its own: one round trip instead of three.

    Its first columns are the shard's owner, which is to be us; the others are returned.
    """
    connection.autocommit = True
    try:
        row = connection.execute(statement.encode(), given, binary=True).fetchone()
    finally:
        if not connection.closed:
            connection.autocommit = False
    found = Owner(NO_OWNER, "nobody") if row is None else Owner(*row[:2])
    owner.require(found, shard)
    return () if row is None else row[2:]


def all_pages(reader: TableReader, shard: int) -> LearnedPages:
    """All pages of a shard."""
    gathered = aggregates_of(_TYPES, "history")
    columns, packed, by_source = columns_of(
        shard, reader.gather(f"pages_{shard}", gathered), _TYPES
    )
    directories = _AllDirectories(reader, shard).of(columns[0])
    return LearnedPages.of(columns, packed, by_source, directories)


class StoredUrls:
    """All URLs of a shard, in no order."""

    def __init__(self, reader: TableReader, shard: int) -> None:
        """Read them.

        Raises:
            DamagedStore: a URL has an end of line in it.
        """
        table = f"page_urls_{shard}"
        self._shard, self._urls = shard, Gathered(reader.bytes_of(table) or 0)
        gathered = ["string_agg(int8send(page_id), ''::bytea)", _URL_BYTES]
        self._parts: list[Any] = reader.gather(table, gathered, taken=self._taken)

    def _taken(self, part: tuple[bytes, bytes]) -> UrlsOfPart:
        page_ids, urls = np.frombuffer(part[0], ">i8").astype(np.int64), part[1] + END_OF_URL
        return UrlsOfPart.of(self._shard, page_ids, urls, self._urls.add(urls))

    def of(self, page_ids: Integers) -> PlacedUrls:
        """The URLs of pages, in the order of their sorted ids.

        Raises:
            DamagedStore: a page has no URL.
        """
        return placed_urls(self._shard, self._parts, self._urls.everything, page_ids)


def crawled_pages(
    database_url: str, shard: int, progress: Callable[[], None] = lambda: None
) -> Iterator[LearnedPages]:
    """The pages of a shard that have crawl records, those of some hosts at a time.

    All of it is of one moment (a REPEATABLE READ transaction), over one connection; a host's pages
    come together. What it costs goes with the pages that have records, but for one look at each of
    the others.

    Args:
        database_url: libpq URL.
        shard: which has tables.
        progress: called for each part that is read, which waits for it; what it raises ends that.

    Raises:
        psycopg.OperationalError: the server went away.
        DamagedStore: a page has no URL.
        BadHistory: another version of Freshet has written one.
    """
    with reading(database_url, progress, readers=1) as reader:
        counts = reader.gather(f"pages_{shard}", ["nullif(count(*), 0)"], _IS_CRAWLED)
        crawled = sum(count for (count,) in counts)
        groups = crawled // PAGES_AT_ONCE + 1
        directories = _directories(reader, shard, crawled)
        gathered = aggregates_of(_TYPES, "history")
        for group in range(groups):
            condition = f"host_id %% {groups} = {group} AND {_IS_CRAWLED}"
            parts = reader.gather(f"pages_{shard}", gathered, condition)
            columns, packed, by_source = columns_of(shard, parts, _TYPES)
            del parts
            yield LearnedPages.of(columns, packed, by_source, directories.of(columns[0]))


def _directories(
    reader: TableReader, shard: int, crawled: int
) -> "_AllDirectories | _ChosenDirectories":
    """Those of a shard's pages, of which so many are asked for."""
    if BY_ID_COSTS * crawled < most_pages_of(reader.connection, [shard]):
        return _ChosenDirectories(reader, shard)
    return _AllDirectories(reader, shard)


class _ChosenDirectories:
    """Those of few pages of a shard, whose URLs are read by their ids."""

    def __init__(self, reader: TableReader, shard: int) -> None:
        self._shard, self._connection = shard, reader.connection
        self._statement = _URLS_AMONG.format(shard=shard).encode()

    def of(self, page_ids: Integers) -> NDArray[np.uint16]:
        """Those of some pages."""
        given = {"ids": page_ids}
        row = self._connection.execute(self._statement, given, binary=True).fetchone()
        return _directories_among(self._shard, row or (None,), page_ids)


class _Directories:
    """Those of pages whose URLs were gathered, in parts: ten bytes a page."""

    def __init__(self, shard: int, parts: Sequence[UrlsOfPart]) -> None:
        page_ids = joined_arrays([part.page_ids for part in parts], np.int64)
        numbers = joined_arrays([part.directories for part in parts], np.uint16)
        order = np.argsort(page_ids)
        self._shard, self._page_ids, self._numbers = shard, page_ids[order], numbers[order]

    def of(self, page_ids: Integers) -> NDArray[np.uint16]:
        """Those of some pages.

        Raises:
            DamagedStore: a page has no URL.
        """
        places = np.searchsorted(self._page_ids, page_ids)
        if places.size and (
            places.max() == self._page_ids.size
            or not np.array_equal(self._page_ids[places], page_ids)
        ):
            raise DamagedStore(f"shard {self._shard}: pages have no row in page_urls")
        return self._numbers[places]


class _AllDirectories(_Directories):
    """Those of all pages of a shard."""

    def __init__(self, reader: TableReader, shard: int) -> None:
        taken = partial(_urls_of, shard)
        parts: list[Any] = reader.gather(f"page_urls_{shard}", list(_URLS), taken=taken)
        super().__init__(shard, parts)


def _directories_among(shard: int, part: Sequence[Any], page_ids: Integers) -> NDArray[np.uint16]:
    """The directories of some pages out of what `_URLS` gathered."""
    parts = [] if part[0] is None else [_urls_of(shard, part)]
    return _Directories(shard, parts).of(page_ids)


def _urls_of(shard: int, part: Sequence[Any]) -> UrlsOfPart:
    """What `_URLS` gathered, but for the URLs themselves."""
    return UrlsOfPart.of(shard, np.asarray(part[0], np.int64), part[1] + END_OF_URL)


def most_pages_of(connection: psycopg.Connection, shards: Collection[int]) -> int:
    """How many pages shards have at most together, by the size of their tables."""
    return _table_bytes(connection, shards) // LEAST_ROW_BYTES


def about_records(connection: psycopg.Connection, shard: int) -> int:
    """About how many crawl records are kept of a shard's pages: more is not worth reading all."""
    blocks = _table_bytes(connection, [shard]) // _BLOCK_BYTES
    row = connection.execute(
        f"SELECT coalesce(sum({_RECORDS}), 0)::int8 FROM pages_{shard} "
        "WHERE ctid < %s::tid".encode(),
        (f"({_SAMPLED_BLOCKS},0)",),
    ).fetchone()
    sampled = 0 if row is None else int(row[0])
    return round(sampled * max(blocks / _SAMPLED_BLOCKS, 1.0))


def _table_bytes(connection: psycopg.Connection, shards: Collection[int]) -> int:
    row = connection.execute(
        "SELECT coalesce(sum(pg_relation_size(to_regclass('pages_' || shard))), 0)::int8 "
        "FROM unnest(%s::int2[]) AS wanted (shard)",
        (np.array(sorted(shards), np.int16),),
    ).fetchone()
    return 0 if row is None else int(row[0])
