"""Every column of a snapshot is what the table has, to the bit, whether it is usual or not."""

import numpy as np
import pytest
from store_contents import changed_columns, fill, urls_of_shard

from shared.store import gathering, writer
from shared.store.connection import connect, connect_writer
from shared.store.history import WAITING, WAITING_OFFSET, Rings, pack
from shared.store.page_parts import PAGE_TYPES
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


@pytest.mark.parametrize("part_bytes", [8192, 4 * 1024 * 1024])
def test_every_column_is_as_in_the_table(changed, monkeypatch, part_bytes):
    monkeypatch.setattr(gathering, "PART_BYTES", part_bytes)
    loaded = load_shard(changed, 1)
    pages, condition = loaded.pages, f"status <> {REMOVED}"
    for field, (name, kind) in zip(pages.__slots__, PAGE_TYPES.items(), strict=True):
        column, stored = getattr(pages, field), in_table(changed, name, condition)
        assert column.dtype == stored.dtype == kind, name
        assert column.tobytes() == stored.tobytes(), name
        assert name == "host_id" or np.unique(column).size > 1, f"{name}: nothing to tell apart"
    removed = f"status = {REMOVED}"
    assert loaded.removed.page_ids.size > 0
    assert loaded.removed.page_ids.tobytes() == in_table(changed, "page_id", removed).tobytes()
    assert loaded.removed.removed_at.tobytes() == in_table(changed, "updated_at", removed).tobytes()
    histories = b"".join(in_table(changed, "history", condition))
    rows = np.frombuffer(histories, np.uint8).reshape(pages.page_ids.size, -1)
    waiting = rows[:, WAITING_OFFSET : WAITING_OFFSET + WAITING.itemsize].tobytes()
    for column, name in ((loaded.pending, "pending"), (loaded.multipliers, "multiplier")):
        assert column.tobytes() == np.frombuffer(waiting, WAITING)[name].tobytes(), name
    assert np.unique(loaded.pending).size > 1
