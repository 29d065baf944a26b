"""CloudEvents as the SDK and others write them, and JSON lines."""

import base64
import contextlib
import json
from datetime import UTC, datetime

import pytest
from cloudevents.core.bindings.http import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from services.receiver.events import BATCH, MOST_EVENTS, STRUCTURED, read_events
from services.receiver.lines import MOST_LINES, MOST_REASONS, read_lines
from services.receiver.refusing import Refused

PAGE = "https://a.example/b"
AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
NEEDED = {"id": "1", "source": "/cms", "type": "page.changed", "specversion": "1.0"}


def event(data=None, **attributes):
    return CloudEvent(NEEDED | {"time": AT} | attributes, data)


def read(message):
    headers = {name.lower(): value for name, value in message.headers.items()}
    return read_events(headers.get("content-type", ""), message.headers, message.body)


@pytest.mark.parametrize("write", [to_structured, to_binary])
@pytest.mark.parametrize(
    "made",
    [
        event(subject=PAGE),
        event({"url": PAGE}, datacontenttype="application/json"),
        event({"url": "https://other.example/"}, subject=f"{PAGE}#part"),
    ],
)
def test_an_event_names_its_page_and_time_in_either_form(write, made):
    [ping] = read(write(made, JSONFormat())).pings
    assert (ping.url, ping.host, ping.observed_at) == (PAGE, "a.example", AT.timestamp())


def test_of_a_batch_the_good_ones_are_taken_and_the_others_told():
    events = [
        NEEDED | {"subject": PAGE},
        NEEDED | {"subject": "no url"},
        {"specversion": "1.0", "subject": PAGE},
        NEEDED | {"subject": PAGE, "time": "yesterday"},
        NEEDED | {"subject": PAGE, "time": "0001-01-01T00:00:00Z"},
        "no event",
        NEEDED | {"data": {"url": "https://a.example/c"}},
    ]
    found = read_events(f"{BATCH}; charset=utf-8", {}, json.dumps(events).encode())
    assert [ping.url for ping in found.pings] == [PAGE, "https://a.example/c"]
    assert found.answer()["refused"] == 5
    assert [reason.partition(":")[0] for reason in found.reasons] == [
        f"event {n}" for n in (2, 3, 4, 5, 6)
    ]


@pytest.mark.parametrize("kind", [None, "application/json; charset=utf-8", "text/cms+json"])
def test_data_that_is_json_is_read_in_base64_as_well(kind):
    data = base64.b64encode(json.dumps({"url": PAGE}).encode()).decode()
    made = NEEDED | {"data_base64": data} | ({"datacontenttype": kind} if kind else {})
    for form, body in ((STRUCTURED, made), (BATCH, [made])):
        assert [ping.url for ping in read_events(form, {}, json.dumps(body).encode()).pings] == [
            PAGE
        ]


@pytest.mark.parametrize(
    "more",
    [
        {"datacontenttype": "text/plain"},
        {"data_base64": base64.b64encode(b"no json").decode()},
        {"data_base64": base64.b64encode(b"[" * 100_000).decode()},
        {"data_base64": base64.b64encode(b'{"url": 3}').decode()},
    ],
)
def test_data_in_base64_that_names_no_page_is_refused(more):
    data = base64.b64encode(json.dumps({"url": PAGE}).encode()).decode()
    made = NEEDED | {"data_base64": data} | more
    assert read_events(STRUCTURED, {}, json.dumps(made).encode()).answer()["refused"] == 1
    # Whose subject names it needs no data that does.
    named = json.dumps(made | {"subject": PAGE}).encode()
    assert [ping.url for ping in read_events(STRUCTURED, {}, named).pings] == [PAGE]


def test_an_event_that_says_no_time_makes_a_ping_that_says_none():
    timeless = NEEDED | {"subject": PAGE}
    headers = {f"ce-{name}": value for name, value in timeless.items()}
    for kind, body in ((STRUCTURED, timeless), (BATCH, [timeless]), ("text/plain", None)):
        [ping] = read_events(kind, headers, json.dumps(body).encode()).pings
        assert (ping.url, ping.observed_at) == (PAGE, None)


@pytest.mark.parametrize("name", ["time", "subject", "dataschema", "datacontenttype", "anything"])
def test_what_is_null_counts_as_left_out(name):
    # As the JSON format has it, section 2.2.
    made = NEEDED | {"data": {"url": PAGE}, name: None}
    for kind, body in ((STRUCTURED, made), (BATCH, [made])):
        assert [ping.url for ping in read_events(kind, {}, json.dumps(body).encode()).pings] == [
            PAGE
        ]


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (BATCH, b"{", 400),
        (BATCH, b"{}", 400),
        (BATCH, b"[" * 100_000, 400),
        (BATCH, json.dumps([NEEDED] * (MOST_EVENTS + 1)).encode(), 413),
        ("application/json", b"{}", 415),
        ("", b"", 415),
    ],
)
def test_what_is_no_event_at_all_is_refused(kind, body, status):
    with pytest.raises(Refused) as refused:
        read_events(kind, {}, body)
    assert refused.value.status == status


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from([*NEEDED]), inner),
    max_leaves=12,
)


@given(value=JSON, kind=st.sampled_from([STRUCTURED, BATCH]))
def test_no_json_makes_the_reading_of_events_fail(value, kind):
    for body in (json.dumps(value), json.dumps([value]), json.dumps(NEEDED | {"data": value})):
        with contextlib.suppress(Refused):
            read_events(kind, {}, body.encode())


def test_lines_are_signals_and_a_bad_one_keeps_no_other_out():
    body = b"\xef\xbb\xbf" + b"\n".join(
        [
            json.dumps({"url": PAGE, "observed_at": 5.5, "more": 1}).encode(),
            b"",
            b"{",
            b'{"url": "ftp://a.example/"}',
            b'{"url": "https://a.example/", "observed_at": -1}',
            b'{"url": "https://a.example/c", "title": "cut \\ud83d"}\r',
        ]
    )
    found = read_lines(body)
    assert [(p.url, p.observed_at) for p in found.pings] == [
        (PAGE, 5.5),
        ("https://a.example/c", None),
    ]
    assert [reason.partition(":")[0] for reason in found.reasons] == ["line 3", "line 4", "line 5"]


def test_only_so_many_lines_are_taken_and_only_so_many_faults_told():
    with pytest.raises(Refused):
        read_lines(b"{}\n" * (MOST_LINES + 1))
    found = read_lines(b"x\n" * 100)
    assert (found.refused, len(found.reasons)) == (100, MOST_REASONS)
