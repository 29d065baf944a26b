"""Files of pages: columns that may be missing, values that may be empty, errors that are named."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from services.cli.errors import UserError
from services.cli.page_files import read_rows


def test_csv_with_all_columns(tmp_path: Path) -> None:
    file = tmp_path / "pages.csv"
    file.write_text(
        "importance,url,crawled_at,max_age_days,note\n"
        "2,https://a.example/,1700000000,7,x\n"
        "3,https://b.example/,,,y\n"
    )

    (rows,) = read_rows(file)

    assert rows.urls.to_pylist() == ["https://a.example/", "https://b.example/"]
    assert rows.importance.tolist() == [2, 3]
    assert rows.max_age_days.tolist() == [7, np.inf]
    assert rows.crawled_at.tolist() == [1.7e9, -np.inf]


def test_only_url_and_importance_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "pages.csv"
    file.write_text("url,importance\nhttps://a.example/,2\n")

    (rows,) = read_rows(file)

    assert rows.max_age_days is None
    assert rows.crawled_at.tolist() == [-np.inf]


def test_a_class_that_is_empty_is_none_and_without_the_column_nothing_is_said(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pages.csv"
    file.write_text("url,importance,class\nhttps://a.example/,2,news\nhttps://b.example/,3,\n")
    (rows,) = read_rows(file)
    assert rows.classes == ["news", None]
    file.write_text("url,importance\nhttps://a.example/,2\n")
    (rows,) = read_rows(file)
    assert rows.classes is None


def test_a_row_without_a_page_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pages.parquet"
    urls = ["https://a.example/", None]
    pyarrow.parquet.write_table(pa.table({"url": urls, "importance": np.ones(2)}), file)
    with pytest.raises(UserError, match="row 2: column url: nothing there"):
        list(read_rows(file))


def test_a_row_far_into_a_file_is_named_by_its_place_in_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "pages.parquet"
    urls = [*("https://a.example/" for _ in range(150_000)), None]
    pyarrow.parquet.write_table(pa.table({"url": urls, "importance": np.ones(len(urls))}), file)
    with pytest.raises(UserError, match="row 150001: column url: nothing there"):
        list(read_rows(file))
    csv = tmp_path / "pages.csv"
    csv.write_text("url,importance\nhttps://a.example/,1\nhttps://a.example/,much\n")
    with pytest.raises(UserError, match="row 2: CSV conversion error"):
        list(read_rows(csv))


def test_parquet_comes_in_stretches(tmp_path: Path) -> None:
    file = tmp_path / "pages.parquet"
    count = 250_000
    urls = [f"https://a.example/{i}" for i in range(count)]
    pyarrow.parquet.write_table(pa.table({"url": urls, "importance": np.ones(count)}), file)

    parts = list(read_rows(file))

    assert len(parts) > 1
    assert sum(len(part.urls) for part in parts) == count


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("url,weight\nhttps://a.example/,1\n", "importance is missing"),
        ("url,importance\nhttps://a.example/,much\n", "much"),
        ("url,importance,importance\nhttps://a.example/,1,9\n", "importance is there more than"),
    ],
)
def test_errors_are_named(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "pages.csv"
    file.write_text(text)

    with pytest.raises(UserError, match=told):
        list(read_rows(file))


def write(tmp_path: Path, kind: str, *columns: str) -> Path:
    """A file of one row with these columns beside the two that it must have."""
    file = tmp_path / f"pages.{kind}"
    row = {"url": ["https://a.example/"], "importance": [2.0]} | {name: [7.0] for name in columns}
    table = pa.table(row)
    if kind == "csv":
        pyarrow.csv.write_csv(table, file)
    else:
        pyarrow.parquet.write_table(table, file)
    return file


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("max_age", "max_age_days"),
        ("Max_Age_Days", "max_age_days"),
        ("max age days", "max_age_days"),
        ("max_age_day", "max_age_days"),
        ("maxagedays", "max_age_days"),
        ("crawled", "crawled_at"),
        ("crawled_ta", "crawled_at"),
        ("last_crawled_at", "crawled_at"),
        ("Class", "class"),
        ("classes", "class"),
        ("page_class", "class"),
    ],
)
def test_a_misspelt_column_is_refused_and_may_be_left_out(tmp_path, kind, written, meant):
    file = write(tmp_path, kind, written)
    with pytest.raises(UserError, match=f"column {written} is not known: is it {meant}"):
        list(read_rows(file))
    told = []
    [rows] = read_rows(file, told.extend, [written])
    assert (told, rows.max_age_days, rows.classes) == ([written], None, None)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_columns_are_left_out_and_named(tmp_path, kind):
    others = ["created_at", "updated_at", "max", "lang", "url_hash", "klass", "status", "age"]
    told = []
    list(read_rows(write(tmp_path, kind, *others), told.extend))
    assert told == others
    told = []
    # What is there already is not what another one is meant to be.
    list(read_rows(write(tmp_path, kind, "crawled_at", "last_crawled_at"), told.extend))
    assert told == ["last_crawled_at"]
