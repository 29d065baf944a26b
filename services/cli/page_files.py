"""Files of pages to import, read a stretch at a time."""

from collections.abc import Iterator
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


def read_rows(file: Path) -> Iterator[PageBatch]:
    """The rows of a CSV (plain, .gz) or Parquet file: url, importance[, max_age_days, crawled_at,
    class].

    Raises:
        UserError: the file lacks a column or a value is of the wrong type; names the place.
    """
    try:
        for batch in _batches(file):
            # The bytes of a damaged file may be no text, and offsets may lead out of it.
            batch.validate(full=True)
            yield _rows(batch, file)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}") from error


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    types = REQUIRED | OPTIONAL
    if file.suffix == ".parquet":
        parquet = pa.parquet.ParquetFile(file)
        names = parquet.schema_arrow.names
        _require(names, file)
        wanted = [name for name in types if name in names]
        yield from parquet.iter_batches(BATCH_ROWS, columns=wanted)
        return
    reader = pa.csv.open_csv(
        file,
        # One thread and blocks of some thousand rows: an error names its row.
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=8 << 20),
        convert_options=pa.csv.ConvertOptions(column_types=types),
    )
    _require(reader.schema.names, file)
    yield from reader


def _require(names: list[str], file: Path) -> None:
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise UserError(
            f"{file}: column {', '.join(missing)} is missing; there are {', '.join(names)}"
        )
    twice = [name for name in REQUIRED | OPTIONAL if names.count(name) > 1]
    if twice:
        raise UserError(f"{file}: column {', '.join(twice)} is there more than once")


def _rows(batch: pa.RecordBatch, file: Path) -> PageBatch:
    urls = batch.column("url")
    if urls.null_count:
        row = int(np.flatnonzero(urls.is_null().to_numpy(zero_copy_only=False))[0])
        raise UserError(f"{file}, column url: nothing there, {row + 1} rows into a block")
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
