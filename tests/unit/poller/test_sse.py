"""Server-Sent Events are the same wherever the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.poller.sse import MOST_BYTES, MOST_PASSED_OVER, EventParser, ServerEvent, TooLong

STREAM = (
    b"\xef\xbb\xbf:ok\n\nevent: message\nid: 1\ndata: {}\n\n"
    b"data:first\r\ndata: second\r\nid: 2\r\n\r\n"
    b"data\rdata\r\rid\ndata: last\nretry: 3\n\n"
    b"id: 9\n\nid: bad\0\ndata: after\n\ndata: never ends"
)
EVENTS = [
    ServerEvent(b"{}", "1"),
    ServerEvent(b"first\nsecond", "2"),
    ServerEvent(b"\n", "2"),
    ServerEvent(b"last", ""),
    ServerEvent(b"after", "9"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_cuts_anywhere_change_nothing(cuts):
    parser, events, before = EventParser(), [], 0
    for cut in [*sorted(cuts), len(STREAM)]:
        events += parser.feed(STREAM[before:cut])
        before = cut
    assert events == EVENTS


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_no_bytes_make_the_reading_fail(parts):
    parser = EventParser()
    for part in parts:
        parser.feed(part)


LINE = b"x" * (MOST_BYTES - 9)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("lines", [[b"data: " + LINE * 3], [b"data: " + LINE] * 3])
@pytest.mark.parametrize("part", [65_537, 3_000_000])
def test_of_an_event_that_is_too_long_the_id_counts_and_the_next_is_read(lines, end, part):
    last = [b"id: 2", *lines, b"", b"id: 3", b"data: {}", b"", b"data: 1", b"", b":"]
    for order in (last, [*lines, *last[:1], *last[len(lines) + 1 :]]):
        text = end.join([b"data: 0", b"", *order])
        parser, events = EventParser(), []
        for begin in range(0, len(text), part):
            events += parser.feed(text[begin : begin + part])
        assert events == [
            ServerEvent(b"0", ""),
            ServerEvent(b"", "2"),
            ServerEvent(b"{}", "3"),
            ServerEvent(b"1", "3"),
        ]


def test_an_end_of_a_line_that_is_too_long_counts_where_the_network_cuts_after_it():
    parser = EventParser()
    assert parser.feed(b"id: 1\rdata: " + LINE * 2 + b"\r") == []
    events = parser.feed(b"\rid: 2\rdata: {}\r\r:")
    assert events == [ServerEvent(b"", "1"), ServerEvent(b"{}", "2")]


@pytest.mark.parametrize("part", [b"x" * 2**20, b"data: " + b"x" * (2**20 - 7) + b"\n"])
def test_an_event_without_an_end_is_given_up(part):
    parser = EventParser()
    for _ in range(MOST_PASSED_OVER // len(part) - 1):
        assert parser.feed(part) == []
    with pytest.raises(TooLong):
        parser.feed(part * 3)
