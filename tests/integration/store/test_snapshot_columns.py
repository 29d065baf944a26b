"""Every column of a snapshot is what the table has, to the bit, whether it is usual or not."""

import numpy as np
import pytest
from store_contents import changed_columns, fill, urls_of_shard

from shared.store import gathering, writer
from shared.store.connection import connect, connect_writer
from shared.store.history import WAITING, WAITING_OFFSET, Rings, pack
from shared.store.page_parts import PAGE_TYPES, DamagedStore
from shared.store.page_status import GONE, REMOVED
from shared.store.snapshot import load_shard

PAGES = 600


def in_table(store, name, condition):
    with connect(store, "test") as connection:
        statement = f"SELECT array_agg({name} ORDER BY page_id) FROM pages_1 WHERE {condition}"
        return connection.execute(statement, binary=True).fetchone()[0]


def some_waiting(count):
    rings = Rings.empty(count)
    rings.pending[:] = np.arange(count)[:, np.newaxis]
    rings.multiplier[:] = 1.0 + np.arange(count)
    return pack(rings, np.arange(count))


@pytest.fixture
def changed(store):
    """A shard some of whose pages are as usual, and others differ in every column."""
    fill(store, urls_of_shard(1, PAGES), max_age_days=np.where(np.arange(PAGES) % 5, np.inf, 3.0))
    with connect_writer(store, "test") as connection:
        for status, first in ((0, 1), (GONE, 2), (REMOVED, 3)):
            snapshot = load_shard(store, 1)
            rows = np.arange(first, snapshot.pages.page_ids.size, 7)
            columns = changed_columns(snapshot, rows, status=status)
            columns["urgent_at"][::2] = -np.inf
            columns["last_attempt_at"][::3] = columns["last_crawled_at"][::3]
            columns["signal_rate"][::2] = -0.0
            columns["unsignalled_change_rate"][::2] = np.nan
            columns["history"] = some_waiting(rows.size)
            writer.update_pages(connection, columns)
            connection.commit()
    return store


ALONE = {
    "max_age_days": "3",
    "unsignalled_change_rate": "0.5",
    "signal_evidence": "0.5",
    "signal_rate": "0.5",
    "last_crawled_at": "1000",
    "last_attempt_at": "1000",
    "last_changed_at": "1000",
    "last_signal_at": "1000",
    "urgent_at": "1000",
    "digest": "-5000000000",
    "signal_count": "5000000000",
    "failures": "3",
    "misses": "3",
    "status": str(GONE),
    "page_class": "3",
    "signal_times": r"'\x" + 4 * "01020304" + "'",
    "history": r"overlay(history PLACING '\x0102030405060708' FROM 3)",
}
"""Column → something unusual."""


@pytest.fixture
def one_by_one(store):
    """A shard in which for each column a page is unusual in that one alone, and the next not."""
    fill(store, urls_of_shard(1, 3 * len(ALONE)))
    with connect(store, "test") as connection:
        page_ids = load_shard(store, 1).pages.page_ids
        for place, (name, value) in enumerate(ALONE.items()):
            connection.execute(
                f"UPDATE pages_1 SET {name} = {value} WHERE page_id = %s",
                (int(page_ids[2 * place]),),
            )
        connection.commit()
    return store


@pytest.fixture(params=["changed", "one_by_one"])
def filled(store, request):  # `store`: for the mark of what needs a server
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("part_bytes", [8192, 4 * 1024 * 1024])
def test_every_column_is_as_in_the_table(filled, monkeypatch, part_bytes):
    monkeypatch.setattr(gathering, "PART_BYTES", part_bytes)
    loaded = load_shard(filled, 1)
    pages, condition = loaded.pages, f"status <> {REMOVED}"
    for field, (name, kind) in zip(pages.__slots__, PAGE_TYPES.items(), strict=True):
        column, stored = getattr(pages, field), in_table(filled, name, condition)
        assert column.dtype == stored.dtype == kind, name
        assert column.tobytes() == stored.tobytes(), name
        is_one = name in {"host_id", "importance", "updated_at"}
        assert is_one or np.unique(column).size > 1, f"{name}: nothing to tell apart"
    histories = b"".join(in_table(filled, "history", condition))
    rows = np.frombuffer(histories, np.uint8).reshape(pages.page_ids.size, -1)
    waiting = rows[:, WAITING_OFFSET : WAITING_OFFSET + WAITING.itemsize].tobytes()
    for column, name in (
        (loaded.pending, "pending"),
        (loaded.multipliers, "multiplier"),
        (loaded.last_sources, "last_source"),
    ):
        stored = np.frombuffer(waiting, WAITING)[name].astype(column.dtype)
        assert column.tobytes() == stored.tobytes(), name
    assert np.unique(loaded.pending).size > 1
    several = in_table(filled, "signal_times", condition)
    rows = [place for place, times in enumerate(several) if times]
    assert loaded.by_source.rows.tolist() == rows
    assert loaded.by_source.ages.astype("<u4").tobytes() == b"".join(several)


def test_removed_pages_are_as_in_the_table(changed):
    loaded, removed = load_shard(changed, 1), f"status = {REMOVED}"
    assert loaded.removed.page_ids.size > 0
    assert loaded.removed.page_ids.tobytes() == in_table(changed, "page_id", removed).tobytes()
    assert loaded.removed.removed_at.tobytes() == in_table(changed, "updated_at", removed).tobytes()


def test_histories_of_several_widths_are_damage(changed):
    with connect(changed, "test") as connection:
        connection.execute(
            "UPDATE pages_1 SET history = history || '\\x00' "
            "WHERE page_id = (SELECT max(page_id) FROM pages_1)"
        )
        connection.commit()
    with pytest.raises(DamagedStore, match="side by side"):
        load_shard(changed, 1)
    with connect(changed, "test") as connection:
        connection.execute("UPDATE pages_1 SET history = substr(history, 1, 100)")
        connection.commit()
    assert load_shard(changed, 1).pages.page_ids.size > 0, "all of another version"
