"""Traces: what is read, and errors that name file, row and column."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from services.world.trace import TraceError, read_events, read_pages

PAGES = "url,importance\nhttps://a.example/1,2\nhttps://b.example/2,0.5\n"
EVENTS = (
    "time_days,url,event,source\n"
    "0.5,https://b.example/2,signal,sitemap\n"
    "0.25,https://a.example/1,change,\n"
    "0.25,https://A.example:443/1,signal,webping\n"
)


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_pages_and_events_are_read_in_order_of_time(tmp_path: Path, suffix: str) -> None:
    pages = read_pages(write(tmp_path / f"pages{suffix}", PAGES))
    stream = read_events(write(tmp_path / f"events{suffix}", EVENTS), pages)

    assert pages.hosts == ["a.example", "b.example"]
    assert pages.importance.tolist() == [2.0, 0.5]
    assert np.isinf(pages.max_age_days).all()
    assert pages.held.all()
    changes = stream.changes(0.3)
    assert changes.pages.tolist() == [0]
    early, late = stream.signals(0.3), stream.signals(9.0)
    assert [stream.source_names[s] for s in early.sources] == ["webping"]
    assert [stream.source_names[s] for s in late.sources] == ["sitemap"]
    assert late.pages.tolist() == [1]
    assert len(stream.changes(9.0)) == 0


def test_requests_are_read_and_leave_the_other_streams_alone(tmp_path: Path) -> None:
    pages = read_pages(write(tmp_path / "pages.csv", PAGES))
    rows = "0.9,https://b.example/2,request,\n0.1,https://a.example/1,request,\n"
    with_requests = read_events(write(tmp_path / "more.csv", EVENTS + rows), pages)
    without = read_events(write(tmp_path / "events.csv", EVENTS), pages)
    assert with_requests.requests.days.tolist() == [0.1, 0.9]
    assert with_requests.requests.pages.tolist() == [0, 1]
    assert len(without.requests) == 0
    assert with_requests.changes(9.0).days.tolist() == without.changes(9.0).days.tolist()
    assert with_requests.signals(9.0).days.tolist() == without.signals(9.0).days.tolist()


def test_parquet_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "pages.parquet"
    table = pa.table(
        {"url": ["http://a.example/"], "importance": [3], "max_age_days": [7.0], "extra": ["x"]}
    )
    pyarrow.parquet.write_table(table, file)

    pages = read_pages(file)

    assert pages.importance.tolist() == [3.0]
    assert pages.max_age_days.tolist() == [7.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("url,weight\nhttps://a.example/,1\n", ["column importance is missing", "url, weight"]),
        (
            "url,importance\nhttps://a.example/,1\nhttps://b.example/,heavy\n",
            ["Row #3", "column importance"],
        ),
        ("url,importance\nhttps://a.example/,-1\n", ["row 1, column importance", "-1"]),
        ("url,importance\nhttps://a.example/,\n", ["row 1, column importance"]),
        ("url,importance\nhttps://a.example/,nan\n", ["row 1, column importance: nan is not"]),
        ("url,importance\nhttps://a.example/,1e300\n", ["row 1, column importance", "1e+12"]),
        ("url,importance\nhttps://a.example/,1\nmailto:x,1\n", ["row 2, column url", "mailto:x"]),
        ("url,importance\nhttps://a.example/,1\nhttps://A.example,1\n", ["twice (row 2)"]),
        ("url,importance\nhttps://a.example/,0\n", ["column importance", "weigh nothing"]),
        ("url,importance\n", ["no pages"]),
    ],
)
def test_bad_pages_are_named(tmp_path: Path, text: str, told: list[str]) -> None:
    file = write(tmp_path / "pages.csv", text)

    with pytest.raises(TraceError) as error:
        read_pages(file)

    assert all(part in str(error.value) for part in [str(file), *told])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("0.1,https://a.example/1,moved,", ["row 4, column event", "moved"]),
        ("0.1,https://c.example/1,change,", ["row 4, column url", "not one of the pages"]),
        ("-1,https://a.example/1,change,", ["row 4, column time_days: -1.0 is not a number"]),
        ("1700000000,https://a.example/1,signal,", ["row 4, column time_days", "times are days"]),
        (",https://a.example/1,change,", ["row 4, column time_days"]),
        ("soon,https://a.example/1,change,", ["column time_days", "Row #5"]),
        (f"1,https://a.example/1,signal,{'x' * 200}", ["row 4, column source", "too long"]),
    ],
)
def test_bad_events_are_named(tmp_path: Path, row: str, told: list[str]) -> None:
    pages = read_pages(write(tmp_path / "pages.csv", PAGES))
    file = write(tmp_path / "events.csv", EVENTS + row + "\n")

    with pytest.raises(TraceError) as error:
        read_events(file, pages)

    assert all(part in str(error.value) for part in [str(file), *told])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.csv"):
        read_pages(tmp_path / "nowhere.csv")
