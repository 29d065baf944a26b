"""No file of pages or events makes a command fail but by saying what is wrong with it."""

import gzip
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.cli.errors import UserError
from services.cli.page_files import read_rows
from services.world.trace import TraceError, read_events, read_pages

FUZZ = {"deadline": None, "max_examples": 150, "suppress_health_check": list(HealthCheck)}
CELL = st.one_of(
    st.sampled_from(["https://a.example/", "https://b.example/", "1", "0", "-1", "nan", "inf"]),
    st.sampled_from(["", "change", "signal", "request", "1e400", '"', "\x00", "é", "a,b", "x\ny"]),
    st.text(max_size=8),
)
NAMES = ["url", "importance", "max_age_days", "crawled_at", "time_days", "event", "source"]
TABLE = st.builds(
    lambda names, rows: "\n".join(",".join(row) for row in [names, *rows]).encode(
        "utf-8", "surrogatepass"
    ),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=5),
    st.lists(st.lists(CELL, min_size=1, max_size=5), max_size=5),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def pages(folder):
    file = folder / "pages.csv"
    file.write_text("url,importance\nhttps://a.example/,1\nhttps://b.example/,2\n")
    return read_pages(file)


def written(folder: Path, data: bytes, suffix: str) -> Path:
    file = folder / f"{uuid.uuid4().hex}{suffix}"
    file.write_bytes(data)
    return file


def read_all(file: Path, pages) -> None:
    try:
        for rows in read_rows(file):
            assert len(rows.urls) == rows.importance.size == rows.crawled_at.size
    except UserError as error:
        assert file.name in error.message  # noqa: PT017
    for read in (read_pages, lambda path: read_events(path, pages)):
        try:
            read(file)
        except TraceError as error:
            assert file.name in str(error)  # noqa: PT017
    file.unlink()


@pytest.mark.slow(0.5)
@settings(**FUZZ)
@given(data=TABLE | st.binary(max_size=60))
@example(data=b"url,url,importance\n")
@example(data=b"url,importance,importance\nhttps://a.example/,1,2\n")
def test_any_text_is_read_or_refused(folder, pages, data):
    read_all(written(folder, data, ".csv"), pages)


@pytest.mark.slow(0.5)
@settings(**FUZZ)
@given(data=TABLE, cut=st.integers(0, 40), flip=st.integers(0, 2000))
def test_any_damaged_gzip_is_read_or_refused(folder, pages, data, cut, flip):
    packed = bytearray(gzip.compress(data))
    packed[flip % len(packed)] ^= 1 + flip % 255
    read_all(written(folder, bytes(packed[: len(packed) - cut]), ".csv.gz"), pages)


@settings(**FUZZ)
@given(flip=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 300))
def test_any_damaged_parquet_is_read_or_refused(folder, pages, flip, value, cut):
    whole = folder / "whole.parquet"
    if not whole.exists():
        columns = {"url": [f"https://a.example/{n}" for n in range(50)]}
        columns["importance"] = np.arange(50.0).tolist()
        pa.parquet.write_table(pa.table(columns), whole)
    data = bytearray(whole.read_bytes())
    data[flip % len(data)] = value
    read_all(written(folder, bytes(data[: len(data) - cut]), ".parquet"), pages)
