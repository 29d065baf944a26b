"""Server-Sent Events are the same wherever the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.poller.sse import MOST_BYTES, EventParser, ServerEvent, TooLong

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


@pytest.mark.parametrize("part", [b"x" * 65536, b"data: " + b"x" * 65530 + b"\n"])
def test_an_event_without_an_end_is_given_up(part):
    parser = EventParser()
    for _ in range(MOST_BYTES // len(part) - 1):
        assert parser.feed(part) == []
    with pytest.raises(TooLong):
        parser.feed(part * 3)
