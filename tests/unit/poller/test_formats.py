"""What events of streams say of pages, format by format."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stream_samples import canary, page_change, post, recent_change

from services.poller.formats import READERS, Mapping, mapped, read_event
from services.poller.streams import streams_of
from shared.runtime.settings import Settings, SettingsError

PAGE = "https://en.wiki.example/wiki/Page_7"
AT = 1_767_225_607.0


def said(name, event):
    return read_event(READERS[name], json.dumps(event).encode())


@pytest.mark.parametrize(
    ("event", "by_bot"),
    [
        (recent_change(7), False),
        (recent_change(7, type="new"), False),
        (recent_change(7, bot=True), True),
        (page_change(7), False),
        (page_change(7, "delete"), False),
        (page_change(7, by_bot=True), True),
    ],
)
def test_changes_of_wikimedias_pages_are_signals_and_bots_are_known(event, by_bot):
    found = said("wikimedia", event)
    assert (found.ping.url, found.ping.observed_at) == (PAGE, AT)
    assert found.by_bot is by_bot


@pytest.mark.parametrize(
    "event",
    [
        canary(7),
        recent_change(7, type="log"),
        recent_change(7, type="categorize"),
        recent_change(7, type="external"),
        page_change(7, "visibility_change"),
    ],
)
def test_what_changes_no_page_is_left_out(event):
    assert said("wikimedia", event).ping is None


def test_posts_have_pages_and_every_event_moves_the_cursor():
    found = said("jetstream", post(5))
    assert found.ping.url == "https://bsky.app/profile/did:plc:person2/post/post5"
    assert found.ping.observed_at == pytest.approx(1_767_225_600.005)
    assert found.cursor == "1767225600005000"
    other = said("jetstream", post(6, "app.bsky.feed.like"))
    assert (other.ping, other.cursor) == (None, "1767225600006000")
    identity = {"did": "did:plc:x", "time_us": 1, "kind": "identity", "identity": {}}
    assert (said("jetstream", identity).ping, said("jetstream", identity).cursor) == (None, "1")


def test_any_json_is_read_where_the_operator_says():
    reader = mapped(Mapping("https://a.example/{item.slug}/{item.n}", "at", "item.n"))
    found = read_event(reader, b'{"item": {"slug": "x", "n": 3}, "at": 1767225600000}')
    assert (found.ping.url, found.ping.observed_at) == ("https://a.example/x/3", 1767225600.0)
    assert found.cursor == "3"
    # JSON's numbers have no end.
    huge = read_event(reader, b'{"item": {"slug": "x", "n": 3}, "at": ' + b"9" * 400 + b"}")
    assert (huge.ping.url, huge.ping.observed_at) == ("https://a.example/x/3", None)
    # Of a time that nobody can have meant the page counts: Go's zero, and its like.
    for never in ('"0001-01-01T00:00:00Z"', '"1969-12-31T23:59:59"', '"9999-12-31"', "-1", "-0.5"):
        at = f'{{"item": {{"slug": "x", "n": 3}}, "at": {never}}}'.encode()
        assert read_event(reader, at).ping.observed_at is None
    first = read_event(reader, b'{"item": {"slug": "x", "n": 3}, "at": "1970-01-01T00:00:00Z"}')
    assert first.ping.observed_at == 0.0
    for data in (b"", b"[]", b"{}", b'{"item": {"slug": true, "n": 1}}', b'{"item": 1}'):
        with pytest.raises(ValueError, match=r"JSON|it has no"):
            read_event(reader, data)


@pytest.mark.parametrize(
    "at",
    [
        "",
        "yesterday",
        "2026-01-01T00:00:60Z",
        "Thu, 01 Jan 2026 00:00:07 GMT",
        "0001-01-01T00:00:00+23:59",
        "1767225607",
        {"seconds": 5},
        [],
        True,
    ],
)
def test_a_page_whose_time_cannot_be_read_has_changed_when_it_is_heard_of(at):
    reader = mapped(Mapping("https://a.example/{slug}", "at", "place"))
    found = read_event(reader, json.dumps({"slug": "x", "at": at, "place": 9}).encode())
    assert (found.ping.url, found.ping.observed_at) == ("https://a.example/x", None)
    assert found.cursor == "9"
    edited = recent_change(7)
    edited["meta"]["dt"] = at
    assert said("wikimedia", edited).ping.observed_at is None


@pytest.mark.parametrize(
    "event",
    [{}, {"meta": 1}, {"meta": {"uri": "x"}, "type": "edit"}, {"meta": {}, "type": "new"}],
)
def test_what_is_not_of_the_format_is_refused(event):
    with pytest.raises(ValueError, match=r"."):
        said("wikimedia", event)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.dictionaries(
        st.sampled_from(["meta", "uri", "dt", "type", "commit", "did", "rkey", "time_us", "kind"]),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)


@given(VALUES, st.sampled_from(sorted(READERS)))
def test_no_event_makes_the_reading_fail_otherwise(event, name):
    try:
        said(name, event)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either way is right


GOOD = {"url": "https://s.example/", "source": "wiki", "format": "wikimedia"}


@pytest.mark.parametrize(
    ("streams", "fault"),
    [
        ([{}], "missing"),
        ([GOOD | {"format": "xml"}], "format"),
        ([GOOD | {"page": "x", "colour": "red"}], "colour"),
        (
            [GOOD | {"url": "ftp://me:pw@s.example/?token=x"}],
            "'ftp://s.example/' is no",
        ),
        ([GOOD | {"format": "json"}], "needs `page`"),
        ([GOOD, GOOD], "a source of its own"),
    ],
)
def test_a_stream_that_is_not_described_well_stops_the_start(streams, fault):
    with pytest.raises(SettingsError, match=fault):
        streams_of(Settings(poller_streams=streams))
    assert streams_of(Settings(poller_streams=[GOOD]))


def test_a_place_that_is_no_text_is_none_however_deep_it_is():
    read = mapped(Mapping("https://a.example/{id}", cursor="place"))
    assert read_event(read, b'{"id": 1, "place": {"a": [1]}}').cursor == ""
    assert read_event(read, b'{"id": 1, "place": 17}').cursor == "17"
    for depth in range(900, 1_000):  # at some of them Python's limit lies behind the reading
        event = b'{"id": 1, "place": ' + b'{"a": ' * depth + b"1" + b"}" * (depth + 1)
        with contextlib.suppress(ValueError):
            assert read_event(read, event).cursor == ""
