"""The tables of crawl rates are made once, and read afterwards; a disk that fails stops nobody."""

import numpy as np
import pytest

from services.scheduler.demand import kept_tables
from shared.policy.kernels.rate_tables import make_tables

SMALL = {"odds": 2, "kappas": 2, "parts": 2, "fine_parts": 4}


@pytest.fixture
def made(monkeypatch):
    """How often tables were made."""
    times = []

    def make():
        times.append(1)
        return make_tables(**SMALL)

    monkeypatch.setattr(kept_tables, "make_tables", make)
    return times


def same(tables, others):
    return all(
        a.dtype == b.dtype and a.flags.writeable == b.flags.writeable and np.array_equal(a, b)
        for a, b in zip(tables, others, strict=True)
    )


def test_the_second_process_reads_what_the_first_has_made(tmp_path, made):
    folder = tmp_path / "kernels-1"
    first, second = kept_tables._kept(folder), kept_tables._kept(folder)

    assert len(made) == 1
    assert same(first, second)
    assert sorted(path.name for path in folder.iterdir()) == sorted(kept_tables._FILES)


@pytest.mark.parametrize("damage", ["cut off", "empty", "gone"])
def test_what_cannot_be_read_is_made_anew(tmp_path, made, damage):
    first = kept_tables._kept(tmp_path)
    path = tmp_path / kept_tables._FILES[-1]
    text = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(text[:-8] if damage == "cut off" else b"")

    assert same(kept_tables._kept(tmp_path), first)
    assert len(made) == 2
    assert path.read_bytes() == text


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path, made):
    folder = tmp_path / "a file"
    folder.write_text("where a folder is to be")

    assert same(kept_tables._kept(folder), kept_tables._kept(folder))
    assert len(made) == 2
