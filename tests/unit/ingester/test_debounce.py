"""Repeated signals count once, in a table of fixed size."""

import numpy as np
import pytest

from services.ingester.debounce import Debouncer


def repeated(debouncer, hashes, times):
    return debouncer.repeated(np.array(hashes, np.uint64), np.array(times, np.float64)).tolist()


def test_a_repetition_within_the_window_is_found_in_a_batch_and_across_batches():
    debouncer = Debouncer(60.0)
    assert repeated(debouncer, [1, 2, 1, 1], [0, 0, 59, 61]) == [False, False, True, False]
    assert repeated(debouncer, [1, 2], [100, 100]) == [True, False]


def test_the_window_counts_from_the_last_one_that_passed_so_a_stream_of_them_goes_on_passing():
    debouncer = Debouncer(10.0)
    assert repeated(debouncer, [7] * 30, range(30)).count(False) == 3


def test_an_older_signal_of_another_moment_passes():
    debouncer = Debouncer(10.0)
    assert repeated(debouncer, [7, 7, 7], [100, 95, 80]) == [False, True, False]


def test_without_a_window_everything_passes():
    assert repeated(Debouncer(0.0), [7, 7], [1, 1]) == [False, False]


def test_agrees_with_a_dictionary_where_there_is_room():
    random = np.random.default_rng(5)
    names = random.integers(1, 1 << 63, 500, dtype=np.uint64)
    hashes = names[random.integers(0, 500, 20_000)]
    times = np.sort(random.uniform(0, 1000, 20_000))
    last = {}
    expected = []
    for key, time in zip(hashes.tolist(), times.tolist(), strict=True):
        again = key in last and time - last[key] < 15.0
        expected.append(again)
        if not again:
            last[key] = time
    assert Debouncer(15.0).repeated(hashes, times).tolist() == expected


def test_a_full_table_forgets_the_oldest_and_stays_as_large():
    debouncer = Debouncer(1e9, entries=8)
    assert not any(repeated(debouncer, range(8, 17), range(9)))
    assert repeated(debouncer, [9, 16], [9, 9]) == [True, True]
    assert repeated(debouncer, [8], [9]) == [False]


@pytest.mark.parametrize("entries", [0, 7, 12])
def test_a_table_of_another_size_is_refused(entries):
    with pytest.raises(ValueError, match="power of two"):
        Debouncer(1.0, entries)
