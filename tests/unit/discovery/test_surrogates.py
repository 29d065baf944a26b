"""Characters in two halves, as some programs write those that are not in the basic plane."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.discovery.surrogates import Mender, mended

ROCKET, UNKNOWN = b"&#x1F680;", b"&#xFFFD;"
HIGH, LOW = b"&#55357;", b"&#56960;"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (HIGH + LOW, ROCKET),
        (b"&#xD83D;&#xDE80;", ROCKET),
        (b"&#XD83d;&#x0de80;", ROCKET),
        (b"&#0055357;&#xDE80;", ROCKET),
        (b"a" + HIGH + LOW + HIGH + LOW + b"b", b"a" + ROCKET + ROCKET + b"b"),
        (HIGH, UNKNOWN),
        (LOW + HIGH, UNKNOWN + UNKNOWN),
        (HIGH + HIGH + LOW + LOW, UNKNOWN + ROCKET + UNKNOWN),
        (HIGH + b" " + LOW, UNKNOWN + b" " + UNKNOWN),
        # The last characters before them, and the first ones after.
        (b"&#55295;&#xE000;&#57344;" + LOW, b"&#xD7FF;&#xE000;&#xE000;" + UNKNOWN),
    ],
)
def test_two_halves_are_a_character_and_one_is_unknown(text, meant):
    assert mended(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        b"&#128640; &#x1F680; &amp; &#38;",
        b"&amp;#55357;&amp;#56960;",
        b"#55357; &#55357 &# 55357; &#d83d; &#x55357; &#155357;",
        b"https://a.example/?a=%26#55357;",
    ],
)
def test_what_is_no_half_stays_as_it_is(text):
    assert mended(text) == text
    assert mended(text + HIGH) == text + UNKNOWN


@pytest.mark.parametrize("around", [b"<![CDATA[%s]]>", b"<!-- %s -->", b"<?php %s ?>"])
def test_what_refers_to_nothing_stays_as_it_is(around):
    literal = around % (b"<![CDATA[ <!-- ]] -- ?" + HIGH + LOW)
    assert mended(literal + LOW + literal) == literal + UNKNOWN + literal
    assert mended(literal[:-1] + HIGH) == literal[:-1] + HIGH


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(
    "unit", [b"&#", b"&#0", b"0", b"&#xD83D", b"<!--", b"<![CDATA[", b"<?", b"]]", HIGH, HIGH + LOW]
)
def test_no_text_makes_the_mending_take_longer_than_it_is_long(unit):
    # Of what grows with the square of the length, this takes days.
    text = b"&#" + unit * (4_000_000 // len(unit)) + HIGH
    assert len(mended(text)) <= 2 * len(text)


@given(st.text(alphabet="&#xdD8305;<!-[CDATA]> ", max_size=60))
def test_what_is_mended_needs_no_mending(text):
    once = mended(text.encode())
    assert mended(once) == once


@given(
    st.lists(
        st.sampled_from(
            [HIGH, LOW, b"&#xD83D;", b"&#xdE80;", b"&#55296;", b"&#56319;", b"&amp;", b"a"]
        ),
        max_size=12,
    ).map(b"".join),
    st.integers(1, 20),
)
def test_a_text_that_comes_in_parts_is_mended_as_a_whole_one(text, size):
    mender = Mender()
    parts = [mender.mend(text[begin : begin + size]) for begin in range(0, len(text), size)]
    assert b"".join([*parts, mender.mend(b"", is_last=True)]) == mended(text)


@pytest.mark.slow(0.5)
def test_of_a_text_that_comes_in_parts_nothing_is_kept():
    mender = Mender()
    for _ in range(100):
        for part in (b"&#", b"0" * 100_000, b"x" * 10, HIGH):
            mender.mend(part)
            assert len(mender._rest) <= 64
