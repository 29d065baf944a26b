"""Reading a recorded world: pages and events from CSV (plain or gzip) or Parquet files."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from services.world.events import Changes, RecordedStream, Requests, Signals
from services.world.pages import WorldPages, make_pages
from shared.contracts.fields import MAX_IMPORTANCE, MAX_SOURCE_LENGTH
from shared.contracts.identity import BadUrl, identify

PAGE_COLUMNS = {"url": pa.string(), "importance": pa.float64()}
PAGE_OPTIONAL = {"max_age_days": pa.float64()}
EVENT_COLUMNS = {"time_days": pa.float64(), "url": pa.string(), "event": pa.string()}
EVENT_OPTIONAL = {"source": pa.string()}

LONGEST_DAYS = 100_000.0
"""Times beyond it, 274 years, are no days since a beginning, but seconds of some clock."""

MAX_SOURCES = 1000
"""More names than this are a column in the wrong place, not sources."""

DEFAULT_SOURCE = "trace"
"""Source of signals for which the trace names none."""


class TraceError(Exception):
    """A trace that cannot be read; the text names file, row and column."""


def read_pages(file: Path) -> WorldPages:
    """Read a trace's pages: `url`, `importance` and, if there, `max_age_days`.

    Raises:
        TraceError: file missing, column missing or of the wrong type, a bad or repeated URL.
    """
    table = _read(file, PAGE_COLUMNS, PAGE_OPTIONAL)
    if table.num_rows == 0:
        raise TraceError(f"{file}: there are no pages in it")
    importance = _numbers(table, "importance", file, lowest=0.0)
    too_high = f"more than the {MAX_IMPORTANCE:g} that an importance may be"
    _refuse(importance > MAX_IMPORTANCE, importance, file, "importance", too_high)
    if importance.sum() <= 0:
        raise TraceError(f"{file}, column importance: all pages weigh nothing")
    max_age = None
    if "max_age_days" in table.column_names:
        max_age = _numbers(table, "max_age_days", file, lowest=0.0, missing=True)
        max_age = np.where(np.isnan(max_age), np.inf, max_age)
    urls = _texts(table, "url", file)
    try:
        return make_pages(urls, importance, max_age_days=max_age)
    except BadUrl as error:
        row = next(row for row, url in enumerate(urls) if not _is_url(url))
        raise TraceError(f"{file}, row {row + 1}, column url: {error}: {urls[row]!r}") from error
    except ValueError as error:
        raise TraceError(f"{file}, column url: {error}") from error


def read_events(file: Path, pages: WorldPages) -> RecordedStream:
    """Read a trace's events: `time_days`, `url`, `event` (change, signal or request), `source`.

    The rows may be in any order. Events of one time keep the order of the file.

    Raises:
        TraceError: as for pages; also an event about a page that is not in the pages' file.
    """
    table = _read(file, EVENT_COLUMNS, EVENT_OPTIONAL)
    days = _numbers(table, "time_days", file, lowest=0.0)
    no_days = f"beyond {LONGEST_DAYS:g}: times are days since the beginning of the trace"
    _refuse(days > LONGEST_DAYS, days, file, "time_days", no_days)
    kinds = np.array(_texts(table, "event", file), dtype=object)
    is_change = kinds == "change"
    is_signal = kinds == "signal"
    is_request = kinds == "request"
    strange = ~(is_change | is_signal | is_request)
    _refuse(strange, kinds, file, "event", "neither change, signal nor request")
    page_of = _page_numbers(table, file, pages)
    names, sources = _sources(table, file)
    order = np.argsort(days, kind="stable")
    changed, signalled = order[is_change[order]], order[is_signal[order]]
    requested = order[is_request[order]]
    return RecordedStream(
        Changes(days[changed], page_of[changed]),
        Signals(days[signalled], page_of[signalled], sources[signalled]),
        names,
        Requests(days[requested], page_of[requested]),
    )


def _read(
    file: Path, required: dict[str, pa.DataType], optional: dict[str, pa.DataType]
) -> pa.Table:
    types = required | optional
    try:
        if file.suffix == ".parquet":
            table = pa.parquet.read_table(file)
        else:
            # One thread, because only then an error names its row.
            table = pa.csv.read_csv(
                file,
                read_options=pa.csv.ReadOptions(use_threads=False),
                convert_options=pa.csv.ConvertOptions(column_types=types),
            )
        # The bytes of a damaged file may be no text, and offsets may lead out of it.
        table.validate(full=True)
        names = table.column_names
    except FileNotFoundError as error:
        raise TraceError(f"{file}: there is no such file") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{file}: {_with_column_name(str(error), file)}") from error
    missing = [name for name in required if name not in names]
    if missing:
        raise TraceError(
            f"{file}: column {', '.join(missing)} is missing; there are {', '.join(names)}"
        )
    wanted = [name for name in types if name in names]
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise TraceError(f"{file}: column {', '.join(twice)} is there more than once")
    columns = [_cast(table[name], types[name], file, name) for name in wanted]
    return pa.table(columns, names=wanted)


def _cast(column: pa.ChunkedArray, kind: pa.DataType, file: Path, name: str) -> pa.ChunkedArray:
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise TraceError(f"{file}, column {name}: {column.type} where {kind} belongs") from error


def _with_column_name(message: str, file: Path) -> str:
    """Arrow counts columns from 0 and lines from the top; say their name and row instead."""
    found = re.search(r"CSV column #(\d+)", message)
    if not found:
        return message
    try:
        header = pa.csv.open_csv(file).schema.names
    except (pa.ArrowException, OSError):
        return message
    number = int(found[1])
    return (
        message.replace(found[0], f"column {header[number]}") if number < len(header) else message
    )


def _numbers(
    table: pa.Table, name: str, file: Path, *, lowest: float, missing: bool = False
) -> NDArray[np.float64]:
    values = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
    bad = ~np.isfinite(values) | (values < lowest)
    if missing:
        bad &= ~np.isnan(values)
    _refuse(bad, values, file, name, f"not a number of at least {lowest:g}")
    return np.asarray(values, dtype=np.float64)


def _texts(table: pa.Table, name: str, file: Path) -> list[str]:
    column = table[name]
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise TraceError(f"{file}, row {row + 1}, column {name}: nothing there")
    texts: list[str] = column.to_pylist()
    return texts


def _page_numbers(table: pa.Table, file: Path, pages: WorldPages) -> NDArray[np.int64]:
    """Events name pages as the file of pages does, or in another form of the same URL."""
    column = pc.dictionary_encode(table["url"]).combine_chunks()
    row_of = {page_id: row for row, page_id in enumerate(pages.page_ids.tolist())}
    names = _texts(table, "url", file) and column.dictionary.to_pylist()
    numbers = np.array([_number(name, row_of) for name in names], dtype=np.int64)
    found = numbers[column.indices.to_numpy()] if table.num_rows else np.empty(0, np.int64)
    urls = np.array(table["url"].to_pylist(), dtype=object)
    _refuse(found < 0, urls, file, "url", "not one of the pages")
    return np.asarray(found, dtype=np.int64)


def _number(url: str, row_of: dict[int, int]) -> int:
    try:
        return row_of.get(identify(url).page_id, -1)
    except BadUrl:
        return -1


def _sources(table: pa.Table, file: Path) -> tuple[list[str], NDArray[np.int64]]:
    if "source" not in table.column_names:
        return [DEFAULT_SOURCE], np.zeros(table.num_rows, np.int64)
    texts = [text or DEFAULT_SOURCE for text in table["source"].to_pylist()]
    names = sorted(set(texts))
    if len(names) > MAX_SOURCES:
        raise TraceError(f"{file}, column source: {len(names)} names; is the column in its place?")
    too_long = np.array([len(text) > MAX_SOURCE_LENGTH for text in texts], dtype=np.bool_)
    _refuse(too_long, np.array(texts, dtype=object), file, "source", "too long a name")
    number = {name: index for index, name in enumerate(names)}
    return names, np.array([number[text] for text in texts], dtype=np.int64)


def _refuse(
    bad: NDArray[np.bool_], values: NDArray[np.generic], file: Path, column: str, why: str
) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        # As Python's own number: numpy's would name its type.
        value = repr(values[row : row + 1].tolist()[0])[:120]
        raise TraceError(f"{file}, row {row + 1}, column {column}: {value} is {why}")


def _is_url(url: str) -> bool:
    try:
        identify(url)
    except BadUrl:
        return False
    return True
