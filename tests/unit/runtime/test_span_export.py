"""What a backend gets of spans: by real receivers, and as OpenTelemetry encodes them itself."""

import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from types import SimpleNamespace

import grpc
import pytest
from certificates import Authority
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from shared.runtime import span_export
from shared.runtime.settings import Settings
from shared.runtime.span_export import Batch, Encoder, SpanExport, readable
from shared.runtime.tracing import APPLIED, RECEIVED, REQUESTED, STORED, Mark, Tracing, make_tracing

NOW = 1.7e9
MARK = Mark(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
NAMES = (RECEIVED, APPLIED, REQUESTED, STORED)
RESOURCE = Resource({"service.name": "freshet-ingester", "service.instance.id": "one"})
WAIT_SECONDS = 60.0
RANDOM = Random(1)


def over(name, parent, began, ended, **attributes):
    """A span that is over."""
    spans = []
    made = Tracing(1.0, spans.append, random=RANDOM, spans_per_second=1e9)
    made.start(name, parent, began, began, **attributes).end(ended)
    return spans[0]


def by_opentelemetry(spans, resource=RESOURCE):
    return encode_spans([readable(span, resource) for span in spans])


numbers = st.integers(0, 2**63 - 1)
hosts = st.text(max_size=30).filter(lambda text: text.isprintable())
marks = st.builds(Mark, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.integers(-(2**70), 2**70),
    st.text(st.characters(), max_size=3),
    st.binary(max_size=3),
    st.lists(st.integers(0, 9), max_size=3),
    st.just(object()),
)
usual = st.one_of(
    st.fixed_dictionaries({"page_id": numbers, "host": hosts}),
    st.fixed_dictionaries({"page_id": numbers, "host": hosts, "reason": st.sampled_from("ab")}),
    st.just({}),
)
unusual = st.dictionaries(st.sampled_from(["page_id", "host", "more"]), odd)
times = st.floats(0.0, 4e9)


@st.composite
def spans(draw):
    began = draw(times)
    return over(
        draw(st.sampled_from(NAMES)),
        draw(st.none() | marks),
        began,
        began + draw(st.floats(0.0, 1e7)),
        **draw(st.one_of(usual, usual, unusual)),
    )


@pytest.mark.slow(1)
@given(st.lists(st.lists(spans(), min_size=1, max_size=12), min_size=1, max_size=3))
def test_spans_are_encoded_as_opentelemetry_encodes_them(batches):
    encoder = Encoder(RESOURCE)
    for batch in batches:
        assert encoder.request(batch, encode_spans) == by_opentelemetry(batch)


def test_of_a_kind_one_span_is_encoded_by_opentelemetry():
    asked = []

    def counted(some):
        asked.append(len(some))
        return encode_spans(some)

    encoder = Encoder(RESOURCE)
    for number in range(5):
        batch = [
            over(name, parent, NOW, NOW + 1.0, page_id=number, host="a.example")
            for name in NAMES
            for parent in (None, MARK)
            for _ in range(20)
        ]
        encoder.request(batch, counted)
    assert sum(asked) <= 1 + 2 * len(NAMES)


def test_an_exporter_that_tries_again_gets_what_it_got():
    batch = Batch([over(APPLIED, MARK, NOW, NOW)], Encoder(RESOURCE))
    assert batch.request(encode_spans) is batch.request(lambda _: pytest.fail("encoded twice"))


class Reading(SpanExporter):
    """An exporter that is none of OTLP's."""

    def __init__(self):
        self.seen = []

    def export(self, some):
        assert len(some) == len(list(some)) == len(some[:])
        self.seen += some
        return SpanExportResult.SUCCESS


def test_an_exporter_of_another_kind_reads_the_spans():
    exporter, span = Reading(), over(REQUESTED, MARK, NOW, NOW + 1.0, page_id=7, host="a.example")
    assert SpanExport(exporter, RESOURCE).export([span]) is SpanExportResult.SUCCESS
    [seen] = exporter.seen
    assert by_opentelemetry([span]) == encode_spans([seen])


class Receiver:
    """What a backend was sent."""

    def __init__(self):
        self.requests = []
        self.headers = []
        self._changed = threading.Condition()

    def take(self, request, headers):
        with self._changed:
            self.requests.append(request)
            self.headers.append({name.lower(): value for name, value in headers})
            self._changed.notify_all()

    def wait_for(self, mark):
        """Until the span of a mark is here."""
        wanted = mark.span_id.to_bytes(8, "big")
        with self._changed:
            assert self._changed.wait_for(
                lambda: any(span.span_id == wanted for span in self.spans()), WAIT_SECONDS
            )

    def spans(self):
        return [span for part in self.scopes() for span in part.spans]

    def scopes(self):
        return [
            scope
            for request in self.requests
            for part in request.resource_spans
            for scope in part.scope_spans
        ]


@contextmanager
def grpc_receiver(port=0, pair=None):
    receiver = Receiver()

    class Service(TraceServiceServicer):
        def Export(self, request, context):  # noqa: N802 - the service's own name
            receiver.take(request, context.invocation_metadata())
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(Service(), server)
    address = f"127.0.0.1:{port}"
    if pair is None:
        receiver.port = server.add_insecure_port(address)
    else:
        files = [(pair[1].read_bytes(), pair[0].read_bytes())]
        receiver.port = server.add_secure_port(address, grpc.ssl_server_credentials(files))
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()


@contextmanager
def http_receiver():
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(body)
            receiver.take(request, [*self.headers.items(), ("path", self.path)])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


RECEIVERS = {"grpc": grpc_receiver, "http/protobuf": http_receiver}


@pytest.fixture
def made_by_opentelemetry(monkeypatch):
    """How many spans were made for OpenTelemetry's own encoding to read."""
    counted = SimpleNamespace(number=0)

    def make(span, resource):
        counted.number += 1
        return readable(span, resource)

    monkeypatch.setattr(span_export, "readable", make)
    return counted


def chain(made):
    """The spans of a page from its signal to its outcome, and what a backend must say of each."""
    told = {"page_id": 2**62 + 1, "host": "bücher.example"}
    received = made.start(RECEIVED, None, NOW, NOW, **told, source="cms")
    applied = made.start(APPLIED, received.mark, NOW + 1.5, NOW + 1.5, **told)
    requested = made.start(
        REQUESTED, applied.mark, NOW + 9.0, NOW + 9.0, **told, request_id="r", reason="value"
    )
    stored = made.start(STORED, requested.mark, NOW + 12.25, NOW + 12.25, **told, result="changed")
    opened = [received, applied, requested, stored]
    for span, seconds in zip(opened, (0.25, 0.0, 0.5, 0.75), strict=True):
        span.end(span.began + seconds)
    return opened


def attributes_of(message):
    """Text as it is, and numbers as JSON's rule for 64 bits has them: as text."""
    found = {}
    for pair in MessageToDict(message)["attributes"]:
        [(kind, value)] = pair["value"].items()
        found[pair["key"]] = int(value) if kind == "intValue" else value
    return found


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("protocol", RECEIVERS)
def test_a_backend_gets_spans_as_they_were(protocol, monkeypatch, made_by_opentelemetry):
    with RECEIVERS[protocol]() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        made = make_tracing(Settings(trace_share=1.0, instance="one"), "ingester")
        opened = chain(made)
        more = [over(APPLIED, MARK, NOW, NOW, page_id=n, host="a.example") for n in range(50)]
        for span in more:
            made._take(span)
        made.close()
        receiver.wait_for(more[-1].mark)

    assert receiver.headers[0]["x-tenant"] == "seven"
    if protocol == "http/protobuf":
        assert receiver.headers[0]["path"] == "/v1/traces"
        assert receiver.headers[0]["content-encoding"] == "gzip"
    assert {scope.scope.name for scope in receiver.scopes()} == {"freshet"}
    for request in receiver.requests:
        [part] = request.resource_spans
        resource = attributes_of(part.resource)
        assert resource["service.name"] == "freshet-ingester"
        assert resource["service.instance.id"] == "one"
        assert resource["deployment.environment.name"] == "test"
        assert resource["telemetry.sdk.name"] == "opentelemetry"
    by_id = {span.span_id: span for span in receiver.spans()}
    assert len(receiver.spans()) == len(opened) + len(more)
    sent = [by_id[span.mark.span_id.to_bytes(8, "big")] for span in opened]
    assert [span.name for span in sent] == list(NAMES)
    assert len({span.trace_id for span in sent}) == 1
    assert [span.parent_span_id for span in sent] == [b"", *(span.span_id for span in sent[:-1])]
    assert [span.flags for span in sent] == [0x100, 0x300, 0x300, 0x300]
    kinds = [SentSpan.SPAN_KIND_CONSUMER] * 4
    kinds[2] = SentSpan.SPAN_KIND_PRODUCER
    assert [span.kind for span in sent] == kinds
    starts = [int((NOW + seconds) * 1e9) for seconds in (0.0, 1.5, 9.0, 12.25)]
    assert [span.start_time_unix_nano for span in sent] == starts
    lengths = [span.end_time_unix_nano - span.start_time_unix_nano for span in sent]
    assert lengths == pytest.approx([250e6, 0.0, 500e6, 750e6], abs=1e3)
    for span, own in zip(
        sent,
        (
            {"freshet.source": "cms"},
            {},
            {"freshet.request_id": "r", "freshet.reason": "value"},
            {"freshet.result": "changed"},
        ),
        strict=True,
    ):
        said = {"freshet.page_id": 2**62 + 1, "freshet.host": "bücher.example"}
        assert attributes_of(span) == said | own
    assert made_by_opentelemetry.number <= 1 + len(NAMES), "the dear way was taken"


@pytest.mark.slow(0.5)
def test_certificates_are_those_of_opentelemetrys_variables(tmp_path, monkeypatch):
    authority = Authority(tmp_path / "ours", "ours")
    with grpc_receiver(pair=authority.issue("collector")) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"https://localhost:{receiver.port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(authority.certificate))
        made = make_tracing(Settings(trace_share=1.0), "ingester")
        opened = chain(made)
        made.close()
        receiver.wait_for(opened[-1].mark)
    assert len(receiver.spans()) == len(NAMES)


@pytest.mark.slow(1)
def test_a_backend_that_is_away_loses_spans_and_nothing_else(monkeypatch):
    with grpc_receiver() as gone:
        port = gone.port
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
    made = make_tracing(Settings(trace_share=1.0), "ingester")
    for number in range(1000):
        made._take(over(APPLIED, MARK, NOW, NOW, page_id=number, host="a.example"))
    last = over(STORED, MARK, NOW, NOW, page_id=7, host="a.example", result="changed")
    made._take(last)
    with grpc_receiver(port) as back:
        back.wait_for(last.mark)
        made.close()
    assert len(back.spans()) < 100
