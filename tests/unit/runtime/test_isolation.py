"""Finding the items that make a batch fail, and counting bad messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.runtime.isolation import PIECES, BadShare, Count, Pieces, TooManyBadMessages, reason_of


def work_off(items, poison):
    """What is done, in which order, what is set aside, and how many attempts failed."""
    done, aside, failures = [], [], 0
    pieces = Pieces(items)
    for piece in pieces:
        if not poison & set(piece):
            done += piece
            continue
        failures += 1
        if not pieces.split(piece):
            aside += piece
            done += piece
    return done, aside, failures


@given(st.integers(0, 700), st.sets(st.integers(0, 699), max_size=5))
def test_only_what_fails_by_itself_is_set_aside_and_all_is_done_in_order(count, poison):
    items = list(range(count))
    done, aside, _ = work_off(items, poison)
    assert done == items
    assert aside == sorted(poison & set(items))


def test_one_bad_record_of_a_full_batch_costs_few_failures():
    _, _, failures = work_off(range(20_000), {12_345})
    assert failures == 5
    assert PIECES**4 > 20_000


def test_a_reason_is_one_line_that_names_the_error():
    assert reason_of(ValueError("too\nlong")).endswith("ValueError: too")


def share(limit=0.5, least=10, window=100.0):
    return BadShare(limit, least, window)


def test_too_many_bad_ones_of_a_topic_are_told_before_they_are_counted():
    counts = share()
    counts.add({"a": Count(8, 4), "b": Count(100, 0)}, 0.0)
    counts.check({"a": Count(2, 1)}, 1.0)
    with pytest.raises(TooManyBadMessages, match="6 of the last 10 messages of a") as found:
        counts.check({"a": Count(2, 2)}, 1.0)
    assert found.value.topic == "a"
    counts.check({"b": Count(2, 2)}, 1.0)


def test_few_messages_are_no_evidence():
    share().check({"a": Count(9, 9)}, 0.0)


def test_a_good_batch_passes_whatever_came_before():
    counts = share()
    counts.add({"a": Count(100, 50)}, 0.0)
    counts.add({"a": Count(40, 40)}, 0.0)
    counts.check({"a": Count(10, 0)}, 0.0)


def test_the_share_is_that_of_the_window():
    counts = share()
    counts.add({"a": Count(1000, 0)}, 0.0)
    counts.check({"a": Count(20, 20)}, 60.0)
    counts.add({"a": Count(20, 20)}, 60.0)
    with pytest.raises(TooManyBadMessages):
        counts.check({"a": Count(20, 20)}, 120.0)


def test_what_was_read_before_a_long_pause_excuses_nothing():
    counts = share()
    counts.add({"a": Count(1000, 0)}, 0.0)
    with pytest.raises(TooManyBadMessages, match="20 of the last 20"):
        counts.check({"a": Count(20, 20)}, 500.0)


def test_a_share_of_one_never_stops():
    share(limit=1.0).check({"a": Count(10**6, 10**6)}, 0.0)
