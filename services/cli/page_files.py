"""Files of pages to import, read a stretch at a time.

What else a file has is left out, and said. A column that looks like a misspelt one of those that
may be missing is refused: without it pages would keep what they have, and nobody would know why.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from services.cli.errors import UserError
from shared.store.import_rows import PageBatch

BATCH_ROWS = 100_000
REQUIRED = {"url": pa.string(), "importance": pa.float64()}
OPTIONAL = {"max_age_days": pa.float64(), "crawled_at": pa.float64(), "class": pa.string()}

_ALIKE = 0.82
"""Of two names that are taken for one: `crawled` is `crawled_at`, and `created_at` is not."""

_ROW = re.compile(r"\bRow #(\d+)")

_LEAST_PART = 5
"""Letters of a name that another one begins or ends with, to be taken for it: `max_age`."""

Tell = Callable[[list[str]], None]


def read_rows(
    file: Path, tell: Tell = lambda _names: None, ignored: Collection[str] = ()
) -> Iterator[PageBatch]:
    """The rows of a CSV (plain, .gz) or Parquet file: url, importance[, max_age_days, crawled_at,
    class].

    Args:
        file: which.
        tell: called with the names of its other columns, which are left out; once, first.
        ignored: names that may be like one of those and are not meant so.

    Raises:
        UserError: the file lacks a column, has one that is misspelt, or a value is of the wrong
            type; names the place.
    """
    read = 0
    try:
        for batch in _batches(file, tell, ignored):
            # The bytes of a damaged file may be no text, and offsets may lead out of it.
            batch.validate(full=True)
            yield _rows(batch, file, read)
            read += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {_without_head(str(error))}") from error


def _without_head(said: str) -> str:
    """What the reader of CSV says, which counts its rows with the head: those that are refused are
    counted without."""
    return _ROW.sub(lambda found: f"row {int(found[1]) - 1}", said)


def _batches(file: Path, tell: Tell, ignored: Collection[str]) -> Iterator[pa.RecordBatch]:
    types = REQUIRED | OPTIONAL
    if file.suffix == ".parquet":
        parquet = pa.parquet.ParquetFile(file)
        names = parquet.schema_arrow.names
        tell(_others(names, file, ignored))
        wanted = [name for name in types if name in names]
        yield from parquet.iter_batches(BATCH_ROWS, columns=wanted)
        return
    reader = pa.csv.open_csv(
        file,
        # One thread and blocks of some thousand rows: an error names its row.
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=8 << 20),
        convert_options=pa.csv.ConvertOptions(column_types=types),
    )
    tell(_others(reader.schema.names, file, ignored))
    yield from reader


def _others(names: list[str], file: Path, ignored: Collection[str]) -> list[str]:
    """The columns that are not read.

    Raises:
        UserError: one that must be there is missing, or twice there, or one is misspelt.
    """
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise UserError(
            f"{file}: column {', '.join(missing)} is missing; there are {', '.join(names)}"
        )
    twice = [name for name in REQUIRED | OPTIONAL if names.count(name) > 1]
    if twice:
        raise UserError(f"{file}: column {', '.join(twice)} is there more than once")
    others = [name for name in dict.fromkeys(names) if name not in REQUIRED | OPTIONAL]
    absent = [name for name in OPTIONAL if name not in names]
    for name in others:
        meant = next((known for known in absent if _are_alike(name, known)), None)
        if meant is not None and name not in ignored:
            raise UserError(
                f"{file}: column {name} is not known: is it {meant}? There are "
                f"{', '.join(REQUIRED | OPTIONAL)}; --ignore-column {name} leaves it out"
            )
    return others


def _are_alike(name: str, known: str) -> bool:
    """Whether one is likely to be meant for the other."""
    one, other = (re.sub(r"[\W_]", "", text.lower()) for text in (name, known))
    shorter, longer = sorted((one, other), key=len)
    if len(shorter) >= _LEAST_PART and longer.startswith(shorter) | longer.endswith(shorter):
        return True
    return difflib.SequenceMatcher(None, one, other).ratio() >= _ALIKE


def _rows(batch: pa.RecordBatch, file: Path, read: int) -> PageBatch:
    urls = batch.column("url")
    if urls.null_count:
        row = int(np.flatnonzero(urls.is_null().to_numpy(zero_copy_only=False))[0])
        raise UserError(f"{file}: row {read + row + 1}: column url: nothing there")
    return PageBatch(
        urls=urls.cast(pa.string()),
        importance=_column(batch, "importance", np.nan),
        max_age_days=_bounds(batch),
        crawled_at=_column(batch, "crawled_at", -np.inf),
        classes=_classes(batch),
    )


def _bounds(batch: pa.RecordBatch) -> NDArray[np.float64] | None:
    if "max_age_days" not in batch.schema.names:
        return None
    return _column(batch, "max_age_days", np.inf)


def _classes(batch: pa.RecordBatch) -> list[str | None] | None:
    if "class" not in batch.schema.names:
        return None
    return [name or None for name in batch.column("class").cast(pa.string()).to_pylist()]


def _column(batch: pa.RecordBatch, name: str, missing: float) -> NDArray[np.float64]:
    if name not in batch.schema.names:
        return np.full(batch.num_rows, missing)
    column = batch.column(name).cast(pa.float64())
    values = np.array(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    values[column.is_null().to_numpy(zero_copy_only=False)] = missing
    return values
