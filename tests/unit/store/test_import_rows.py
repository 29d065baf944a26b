"""Batches of an import, before the database."""

import numpy as np
import pytest
from page_batches import page_batch

from shared.store.import_rows import gathered, named_batch

NOW = 1_700_000_000.0


def pages(begin, end, **columns):
    return page_batch([f"https://a.example/{n}" for n in range(begin, end)], **columns)


def contents(batch):
    columns = batch.importance, batch.max_age_days, batch.crawled_at
    return batch.urls.to_pylist(), [column.tolist() for column in columns], batch.classes


def test_small_batches_are_gathered_in_their_order():
    whole = pages(0, 10, importance=np.arange(10.0), crawled_at=np.arange(10.0) + 1)
    parts = [
        pages(begin, begin + 2, importance=np.arange(begin, begin + 2.0), crawled_at=times)
        for begin, times in ((n, np.arange(n, n + 2.0) + 1) for n in range(0, 10, 2))
    ]
    assert [len(batch.urls) for batch in gathered(parts, 4)] == [4, 4, 2]
    [together] = gathered(parts, 100)
    assert contents(together) == contents(whole)
    assert list(gathered([], 4)) == []


def test_who_says_nothing_of_classes_is_not_gathered_with_those_who_do():
    parts = [pages(0, 1), pages(1, 2, classes=["a"]), pages(2, 3, classes=[None]), pages(3, 4)]
    assert [batch.classes for batch in gathered(parts, 100)] == [None, ["a", None], None]


def test_who_says_nothing_of_bounds_is_not_gathered_with_those_who_do():
    days = [None, np.array([3.0]), np.array([np.inf]), None]
    parts = [pages(n, n + 1, max_age_days=given) for n, given in enumerate(days)]
    found = [batch.max_age_days for batch in gathered(parts, 100)]
    assert [None if given is None else given.tolist() for given in found] == [
        None,
        [3.0, np.inf],
        None,
    ]


def test_what_comes_before_a_fault_is_not_lost():
    def faulty():
        yield pages(0, 3)
        yield pages(3, 4)
        raise OSError("damaged")

    found = gathered(faulty(), 100)
    assert len(next(found).urls) == 4
    with pytest.raises(OSError, match="damaged"):
        next(found)


def test_a_row_has_one_fault_and_others_go_on():
    urls = ["ftp://a.example/", "https://a.example/", "https://a.example/x", "http://10.0.0.1/"]
    batch = page_batch(
        [*urls, *urls],
        importance=np.array([1.0, 1.0, 1.0, 1.0, np.nan, np.nan, 1.0, np.nan]),
        classes=[None, "Bad", "good", "", "Bad", "Bad", "Bad", None],
    )
    named = named_batch(batch, NOW, private_hosts=False)
    assert named.taken.tolist() == [2]
    reasons = {row: reason.split()[0] for row, reason in named.refused.items()}
    values = dict.fromkeys((4, 5, 7), "importance")
    assert reasons == {0: "scheme", 1: "class", 3: "host", **values, 6: "class"}
    assert named_batch(batch, NOW, private_hosts=True).taken.tolist() == [2, 3]
