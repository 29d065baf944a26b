"""Refused signals are kept while they are few, and counted when they are a flood."""

from services.ingester.refusals import LETTER_BYTES, LETTERS_AT_ONCE, Refusals


def kept(refusals, times, size=100):
    return [text for t in times if (text := refusals.copied_as("bad", size, t)) is not None]


def test_few_are_all_kept_with_their_reason():
    assert kept(Refusals(2.0), range(1000)) == ["bad"] * 1000


def test_a_flood_is_counted_and_the_next_copy_says_how_many():
    refusals = Refusals(2.0)
    texts = kept(refusals, [50.0] * 100_000)
    assert texts == ["bad"] * int(LETTERS_AT_ONCE)
    assert refusals.uncopied == 100_000 - LETTERS_AT_ONCE
    (text,) = kept(refusals, [51.0])
    assert "99000 more were refused" in text
    assert "FRESHET_REFUSED_SIGNALS_KEPT_PER_SECOND" in text
    assert kept(refusals, [52.0]) == ["bad"]


def test_large_ones_count_as_several():
    assert len(kept(Refusals(1.0), [50.0] * 1000, LETTER_BYTES * 100)) == 10


def test_none_are_kept_after_the_first_where_the_rate_is_nil():
    refusals = Refusals(0.0)
    assert len(kept(refusals, range(5000))) == LETTERS_AT_ONCE


def test_a_clock_that_goes_back_gives_nothing():
    refusals = Refusals(1.0)
    kept(refusals, [1e6] * 1000)
    assert kept(refusals, [5.0, 4.0, 3.0]) == []
