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
from shared.runtime.signal_bounds import SignalBounds
from shared.units import SECONDS_PER_DAY

PAGE = "https://a.example/b"
AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
NOW = AT.timestamp() + 60.0
BOUNDS = SignalBounds(300.0, 7 * SECONDS_PER_DAY, allow_private_hosts=False)
NEEDED = {"id": "1", "source": "/cms", "type": "page.changed", "specversion": "1.0"}


def events_of(kind, headers, body):
    return read_events(kind, headers, body, BOUNDS, NOW)


def lines_of(body):
    return read_lines(body, BOUNDS, NOW)


def event(data=None, **attributes):
    return CloudEvent(NEEDED | {"time": AT} | attributes, data)


def read(message):
    headers = {name.lower(): value for name, value in message.headers.items()}
    return events_of(headers.get("content-type", ""), message.headers, message.body)


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
    found = events_of(f"{BATCH}; charset=utf-8", {}, json.dumps(events).encode())
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
        assert [ping.url for ping in events_of(form, {}, json.dumps(body).encode()).pings] == [PAGE]


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
    assert events_of(STRUCTURED, {}, json.dumps(made).encode()).answer()["refused"] == 1
    # Whose subject names it needs no data that does.
    named = json.dumps(made | {"subject": PAGE}).encode()
    assert [ping.url for ping in events_of(STRUCTURED, {}, named).pings] == [PAGE]


def test_an_event_that_says_no_time_makes_a_ping_that_says_none():
    timeless = NEEDED | {"subject": PAGE}
    headers = {f"ce-{name}": value for name, value in timeless.items()}
    for kind, body in ((STRUCTURED, timeless), (BATCH, [timeless]), ("text/plain", None)):
        [ping] = events_of(kind, headers, json.dumps(body).encode()).pings
        assert (ping.url, ping.observed_at) == (PAGE, None)


@pytest.mark.parametrize("name", ["time", "subject", "dataschema", "datacontenttype", "anything"])
def test_what_is_null_counts_as_left_out(name):
    # As the JSON format has it, section 2.2.
    made = NEEDED | {"data": {"url": PAGE}, name: None}
    for kind, body in ((STRUCTURED, made), (BATCH, [made])):
        assert [ping.url for ping in events_of(kind, {}, json.dumps(body).encode()).pings] == [PAGE]


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (BATCH, b"{", 400),
        (BATCH, b"{}", 400),
        (BATCH, b"[" * 100_000, 400),
        (STRUCTURED, b"{", 400),
        (BATCH, json.dumps([NEEDED] * (MOST_EVENTS + 1)).encode(), 413),
        ("application/json", b"{}", 415),
        ("", b"", 415),
    ],
)
def test_what_is_no_event_at_all_is_refused(kind, body, status):
    with pytest.raises(Refused) as refused:
        events_of(kind, {}, body)
    assert refused.value.status == status


NO_EVENT = "an event is a JSON object"
NO_TIME = "`time` must be an RFC 3339 text, like 2026-05-01T12:00:00Z"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        *((said, NO_EVENT) for said in (None, "an event", 5, [NEEDED])),
        *(
            (NEEDED | {"subject": PAGE, "time": time}, NO_TIME)
            for time in (1795944747, 1795944747.5, "yesterday", "", ["x"], "2026-05-01T12:00:00")
        ),
    ],
)
def test_what_is_no_event_or_has_no_time_is_told_so_in_plain_words(said, reason):
    for kind, body in ((STRUCTURED, said), (BATCH, [said])):
        found = events_of(kind, {}, json.dumps(body).encode())
        assert found.answer() == {
            "accepted": 0,
            "refused": 1,
            "reasons": [f"event 1: {reason}"],
        }


def test_a_time_may_be_written_as_the_standard_lets_it_and_in_a_header_encoded():
    for time in ("2026-05-01T12:00:00.0Z", "2026-05-01t12:00:00z", "2026-05-01T14:00:00+02:00"):
        made = json.dumps(NEEDED | {"subject": PAGE, "time": time}).encode()
        assert [ping.observed_at for ping in events_of(STRUCTURED, {}, made).pings] == [
            AT.timestamp()
        ]
    headers = {f"ce-{name}": value for name, value in (NEEDED | {"subject": PAGE}).items()}
    [ping] = events_of("", headers | {"CE-Time": "2026-05-01T12%3A00%3A00Z"}, b"").pings
    assert ping.observed_at == AT.timestamp()
    assert events_of("", headers | {"ce-time": "yesterday"}, b"").reasons == [f"event 1: {NO_TIME}"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from([*NEEDED]), inner),
    max_leaves=12,
)


@given(value=JSON, kind=st.sampled_from([STRUCTURED, BATCH]))
def test_no_json_makes_the_reading_of_events_fail(value, kind):
    for body in (json.dumps(value), json.dumps([value]), json.dumps(NEEDED | {"data": value})):
        with contextlib.suppress(Refused):
            events_of(kind, {}, body.encode())


def test_lines_are_signals_and_a_bad_one_keeps_no_other_out():
    body = b"\xef\xbb\xbf" + b"\n".join(
        [
            json.dumps({"url": PAGE, "observed_at": NOW - 5.5, "more": 1}).encode(),
            b"",
            b"{",
            b'{"url": "ftp://a.example/"}',
            b'{"url": "https://a.example/", "observed_at": -1}',
            b'{"url": "https://a.example/c", "title": "cut \\ud83d"}\r',
        ]
    )
    found = lines_of(body)
    assert [(p.url, p.observed_at) for p in found.pings] == [
        (PAGE, NOW - 5.5),
        ("https://a.example/c", None),
    ]
    assert [reason.partition(":")[0] for reason in found.reasons] == ["line 3", "line 4", "line 5"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}\n" * (MOST_LINES + 1), "10001 lines"),
        (b"{}\n" * MOST_LINES + b"{}", "10001 lines"),
        (b"{}\n" * (MOST_LINES + 2), "10002 lines"),
    ],
)
def test_too_many_lines_are_counted_as_people_count_them(body, said):
    with pytest.raises(Refused, match=f"^{said}; at most 10000 are taken$"):
        lines_of(body)


def test_as_many_lines_as_there_may_be_are_taken_and_only_so_many_faults_told():
    for body in (b"x\n" * MOST_LINES, b"x\n" * (MOST_LINES - 1) + b"x"):
        found = lines_of(body)
        assert (found.refused, len(found.reasons)) == (MOST_LINES, MOST_REASONS)


def test_of_a_line_in_milliseconds_the_reason_says_so():
    found = lines_of(b'{"url": "https://a.example/", "observed_at": 1795944747000}')
    [reason] = found.reasons
    assert reason == (
        "line 1: Expected Unix seconds, and so large a number looks like milliseconds - at "
        "`$.observed_at`"
    )
