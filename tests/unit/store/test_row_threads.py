"""Slices of many rows are worked on in several threads, and come in their order."""

import threading
import time

import pytest

from shared.store import row_threads
from shared.store.row_threads import in_slices


@pytest.mark.parametrize("processors", [1, 2, 4])
@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 95])
def test_every_row_comes_once_in_order(processors, rows, monkeypatch):
    monkeypatch.setattr(row_threads, "threads", lambda: processors)

    def work(part):
        time.sleep(0.001 * (part.start % 3))
        return list(range(part.start, part.stop))

    found = list(in_slices(work, rows, 10))
    assert [row for part in found for row in part] == list(range(rows))
    assert all(len(part) == 10 for part in found[:-1])


def test_what_work_raises_is_raised_and_nothing_goes_on():
    def work(part):
        if part.start == 30:
            raise ValueError("row 30")
        return part

    with pytest.raises(ValueError, match="row 30"):
        list(in_slices(work, 100, 10))
    assert not [one for one in threading.enumerate() if one.name.startswith("rows")]
