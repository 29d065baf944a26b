"""Traces: what a header says, which of many are traced, and what reaches the backend."""

import os
import subprocess
import sys
import threading
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from traced_spans import spans_to

from shared.runtime import tracing
from shared.runtime.settings import Settings, SettingsError
from shared.runtime.tracing import (
    APPLIED,
    BURST_SECONDS,
    HEADER,
    OLDEST_SECONDS,
    REQUESTED,
    SPANS_PER_SECOND,
    Allowance,
    Lot,
    Mark,
    Tracing,
    make_tracing,
    mark_in,
    marks_of,
)

NOW = 1.7e9
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
MARK = Mark(int(TRACE, 16), int(SPAN, 16))
GOOD = f"00-{TRACE}-{SPAN}-01".encode()


def traced(share=1.0, seed=1):
    spans = []
    return Tracing(share, spans_to(spans), random=Random(seed)), spans


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        f"00-{TRACE}-{SPAN}-ff".encode(),
        f"cc-{TRACE}-{SPAN}-01".encode(),
        f"cc-{TRACE}-{SPAN}-01-what-comes-later".encode(),
    ],
)
def test_a_header_of_the_standard_is_read(value):
    assert mark_in([("other", b"x"), (HEADER, value)]) == MARK


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00",
        GOOD.upper(),
        b" " + GOOD,
        GOOD + b"\n",
        GOOD + b"-more",
        GOOD[:-2] + b"00",
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE[:-1]}g-{SPAN}-01".encode(),
        f"cc-{TRACE}-{SPAN}-01-{'x' * 100_000}".encode(),
        "00-٤bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01".encode(),
        b"\xff" * 55,
    ],
    ids=repr,
)
def test_any_other_header_says_nothing(value):
    assert mark_in([(HEADER, value)]) is None


@given(st.binary(max_size=80))
def test_no_bytes_are_too_much_for_it(value):
    found = mark_in([(HEADER, value)])
    assert found is None or all(found)


def test_what_is_written_is_what_others_read():
    [(name, value)] = MARK.headers()
    carrier = {name: value.decode()}
    context = TraceContextTextMapPropagator().extract(carrier)
    TraceContextTextMapPropagator().inject(again := {}, context)
    assert again == carrier == {HEADER: GOOD.decode()}
    assert mark_in([(name, value)]) == MARK


def test_records_without_headers_are_passed_over():
    class Looked:
        headers = ()
        value = property(lambda self: pytest.fail("nobody has to look at it"))

    carrying = SimpleNamespace(headers=((HEADER, GOOD),))
    other = SimpleNamespace(headers=(("source-key", b"s"),))
    assert list(marks_of([Looked(), carrying, other, Looked(), carrying])) == [(1, MARK), (4, MARK)]


@pytest.mark.parametrize("size", [1, 7, 20_000])
def test_about_the_share_is_drawn_whatever_the_size_of_batches(size):
    lot, drawn, of = Lot(0.01, Random(5)), 0, 0
    while of < 40_000:
        places = lot.draw(size)
        assert places == sorted(set(places))
        assert set(places) <= set(range(size))
        drawn, of = drawn + len(places), of + size
    assert drawn / of == pytest.approx(0.01, rel=0.2)


def test_nothing_is_drawn_of_a_share_of_none_and_everything_of_the_whole():
    assert Lot(0.0, Random(1)).draw(1000) == []
    assert Lot(1.0, Random(1)).draw(1000) == list(range(1000))


def test_what_was_traced_without_a_lot_is_drawn_less_afterwards():
    lot = Lot(0.1, Random(2))
    lot.owe(50)
    assert sum(len(lot.draw(100)) for _ in range(10)) == pytest.approx(50, abs=15)


def test_no_more_than_its_allowance_is_spent():
    allowance, taken = Allowance(10.0), 0
    for step in range(10_000):
        taken += allowance.take(NOW + step / 1000.0)
    assert taken == pytest.approx(10.0 * (10.0 + BURST_SECONDS), abs=2)
    assert not allowance.take(NOW - 1000.0)


def test_a_span_follows_another_and_is_told_when_it_is_over():
    made, spans = traced()
    first = made.start(REQUESTED, None, NOW, NOW, page_id=7, host="a.example")
    then = made.start(APPLIED, first.mark, NOW + 1.0, NOW + 2.0)
    then.end(NOW + 2.0)
    assert [span.name for span in spans] == [APPLIED]
    first.end(NOW + 0.25)
    child, parent = spans
    assert (parent.kind, child.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent.attributes == {"freshet.page_id": 7, "freshet.host": "a.example"}
    assert parent.parent is None
    assert child.parent.span_id == parent.context.span_id == first.mark.span_id
    assert child.context.trace_id == parent.context.trace_id
    assert parent.start_time == 1_700_000_000 * 10**9
    assert parent.end_time - parent.start_time == pytest.approx(0.25e9, abs=1e3)


@pytest.mark.parametrize(
    ("said", "believed"), [(0.0, NOW - OLDEST_SECONDS), (9e12, NOW), (NOW - 60.0, NOW - 60.0)]
)
def test_the_time_of_a_record_is_believed_within_reason(said, believed):
    made, spans = traced()
    made.start(APPLIED, MARK, said, NOW).end(NOW)
    assert spans[0].start_time == int(believed * 1e9)
    assert spans[0].end_time == int(NOW * 1e9)


def test_whatever_is_sent_a_process_makes_so_many_spans_a_second():
    made, spans = traced()
    for step in range(50_000):
        span = made.start(APPLIED, MARK, NOW, NOW + step / 10_000.0)
        if span is not None:
            span.end(NOW + 5.0)
    assert len(spans) <= SPANS_PER_SECOND * (5.0 + BURST_SECONDS)


def test_traces_are_off_unless_a_share_is_set(monkeypatch):
    monkeypatch.setattr(
        tracing, "_load_exporter", lambda *_: pytest.fail("nothing is to be loaded")
    )
    assert make_tracing(Settings(), "ingester") is None
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert make_tracing(Settings(trace_share=0.5), "ingester") is None
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert make_tracing(Settings(trace_share=0.5), "ingester") is None


def test_spans_are_of_the_worker_unless_the_environment_names_another(monkeypatch):
    memory = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "_load_exporter", lambda *_: memory)
    for name in ("freshet-ingester", "crawl"):
        made = make_tracing(Settings(trace_share=0.5, instance="one"), "ingester")
        made.start(APPLIED, MARK, NOW, NOW).end(NOW)
        made.close()
        [span] = memory.get_finished_spans()
        assert span.resource.attributes["service.name"] == name
        assert span.resource.attributes["service.instance.id"] == "one"
        memory = InMemorySpanExporter()
        monkeypatch.setenv("OTEL_SERVICE_NAME", "crawl")


def test_a_missing_package_is_named_at_the_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(
        SettingsError, match=r"FRESHET_TRACE_SHARE.*pip install '\.\[traces\]' in a checkout"
    ):
        make_tracing(Settings(trace_share=0.5), "ingester")


def test_an_exporter_that_no_package_brings_is_named_at_the_start(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    with pytest.raises(SettingsError, match=r"'http/json'.*OTEL_EXPORTER_OTLP_PROTOCOL"):
        make_tracing(Settings(trace_share=0.5), "ingester")


def test_a_variable_that_is_empty_is_not_set(monkeypatch):
    names = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL")
    for name in names:
        monkeypatch.setenv(name, "")
    asked = []

    def load(exporter, environment):
        asked.append((exporter, [name for name in names if name in environment]))
        return InMemorySpanExporter()

    monkeypatch.setattr(tracing, "_load_exporter", load)
    make_tracing(Settings(trace_share=0.1), "ingester").close()
    assert asked == [("otlp", [])]


@pytest.mark.slow(0.5)
def test_the_exporter_of_grpc_goes_where_opentelemetrys_variables_say():
    run = (
        "from shared.runtime.tracing import make_tracing\n"
        "from shared.runtime.settings import Settings\n"
        "made = make_tracing(Settings(trace_share=0.5), 'ingester')\n"
        "made.close()\n"
        "import sys; print('opentelemetry.exporter.otlp.proto.grpc' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_a_backend_that_does_not_answer_holds_up_no_stop(monkeypatch):
    monkeypatch.setattr(tracing, "STOP_SECONDS", 0.01)
    answer = threading.Event()
    made = Tracing(1.0, print, close=answer.wait)
    made.close()
    assert not answer.is_set()
    answer.set()


class HeadersOfOtlp(InMemorySpanExporter):
    """Reads what OTLP's exporters read of the environment, when they do."""

    def __init__(self):
        super().__init__()
        self.headers = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS")


def test_headers_may_stand_in_a_file_and_in_no_environment(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(
        tracing, "_load_exporter", lambda *_: made.append(HeadersOfOtlp()) or made[-1]
    )
    file = tmp_path / "headers"
    file.write_text("authorization=Bearer%20secret\n")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS_FILE", str(file))
    for plain, headers in ((None, "authorization=Bearer%20secret"), ("", None), ("x=1", "x=1")):
        if plain is not None:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", plain)
        make_tracing(Settings(trace_share=0.5), "ingester").close()
        assert made[-1].headers == (headers or "authorization=Bearer%20secret")
        assert os.environ.get("OTEL_EXPORTER_OTLP_HEADERS") == plain
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "")
    file.unlink()
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_HEADERS_FILE: .* cannot be"):
        make_tracing(Settings(trace_share=0.5), "ingester")
