"""How spans reach a backend: by OpenTelemetry's exporters, which send, retry and obey OTEL_*.

What makes a span dear is its encoding: OpenTelemetry makes a message of each attribute and each
value, 10 µs a span on a quiet machine, and before it the objects that these are read from. Of our
spans nearly everything is always the same. So one of each kind is encoded by OpenTelemetry, once;
of it, only ids, times and values are changed for each that follows, and all else is what
OpenTelemetry would have written. Exporters that do not encode as those of OTLP do read the spans
as always.

Only to be loaded where traces are on: it loads OpenTelemetry.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from shared.runtime.tracing import REQUESTED, Mark

if TYPE_CHECKING:
    from shared.runtime.tracing import Span

Encode = Callable[[Sequence[ReadableSpan]], Any]
"""OpenTelemetry's: spans to an ExportTraceServiceRequest."""

_ENCODE: Final = "encode_spans"
"""Under which name the modules of OTLP's exporters have it, that of gRPC and that of HTTP."""

_SCOPE: Final = InstrumentationScope("freshet")
_FLAGS: Final = TraceFlags(TraceFlags.SAMPLED)


def readable(span: "Span", resource: Resource) -> ReadableSpan:
    """A span that is over as OpenTelemetry has it."""
    return ReadableSpan(
        span.name,
        _context_of(span.mark, is_remote=False),
        _context_of(span.parent, is_remote=True) if span.parent else None,
        resource,
        {f"freshet.{key}": value for key, value in span.attributes.items()},
        kind=SpanKind.PRODUCER if span.name == REQUESTED else SpanKind.CONSUMER,
        start_time=_nanoseconds(span.began),
        end_time=_nanoseconds(span.ended),
        instrumentation_scope=_SCOPE,
    )


def _context_of(mark: Mark, *, is_remote: bool) -> SpanContext:
    return SpanContext(mark.trace_id, mark.span_id, is_remote, _FLAGS)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


class SpanExport(SpanExporter):
    """An exporter of OpenTelemetry's, to which our spans are handed."""

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        """Make it.

        Args:
            exporter: to hand them to.
            resource: what the spans are of: this process.
        """
        self._exporter, self._encoder = exporter, Encoder(resource)
        _let_encode_batches(exporter)

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Send a batch of ours; may block."""
        return self._exporter.export(Batch(spans, self._encoder))

    def shutdown(self) -> None:
        """Send no more."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Have the exporter send what it has not sent yet, if it keeps anything."""
        return self._exporter.force_flush(timeout_millis)


class Batch(Sequence[ReadableSpan]):
    """Spans on their way to an exporter; who looks at one has it made."""

    def __init__(self, spans: "Sequence[Span]", encoder: "Encoder") -> None:
        self._spans, self._encoder = spans, encoder
        self._request: Any = None

    def __len__(self) -> int:
        """How many they are."""
        return len(self._spans)

    @overload
    def __getitem__(self, place: int) -> ReadableSpan: ...
    @overload
    def __getitem__(self, place: slice) -> "Batch": ...
    def __getitem__(self, place: int | slice) -> "ReadableSpan | Batch":
        """One as OpenTelemetry has it, or some."""
        if isinstance(place, slice):
            return Batch(self._spans[place], self._encoder)
        return readable(self._spans[place], self._encoder.resource)

    def request(self, encode: Encode) -> Any:
        """All of them in one message, made once: an exporter that tries again asks again."""
        if self._request is None:
            self._request = self._encoder.request(self._spans, encode)
        return self._request


class Encoder:
    """Encodes spans as OpenTelemetry does. Safe to use from several threads."""

    def __init__(self, resource: Resource) -> None:
        """Make it for the spans of a resource."""
        self.resource = resource
        self._frame: Any = None
        """A request without spans."""
        self._forms: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}
        """What spans of a kind have in common → one of them, and the values of its attributes."""
        self._lock = threading.Lock()

    def request(self, spans: "Sequence[Span]", encode: Encode) -> Any:
        """All in one message.

        Args:
            spans: at least one.
            encode: OpenTelemetry's own.
        """
        with self._lock:
            if self._frame is None:
                self._frame = self._encoded(spans[0], encode)
                del _spans_in(self._frame)[:]
            request = type(self._frame)()
            request.CopyFrom(self._frame)
            room = _spans_in(request)
            for span in spans:
                try:
                    room.append(self._filled(span, encode))
                except (ValueError, TypeError):  # OpenTelemetry leaves such an attribute out
                    room.extend(_spans_in(self._encoded(span, encode)))
            return request

    def _filled(self, span: "Span", encode: Encode) -> Any:
        """The form of its kind with all that is its own; `append` copies it."""
        mark, parent = span.mark, span.parent
        kind = (span.name, parent is None, *span.attributes)
        if kind not in self._forms:
            [made] = _spans_in(self._encoded(span, encode))
            if len(made.attributes) != len(span.attributes):
                raise ValueError(f"not all of {span.attributes} can be encoded")
            self._forms[kind] = made, [attribute.value for attribute in made.attributes]
        form, values = self._forms[kind]
        form.trace_id = mark.trace_id.to_bytes(16, "big")
        form.span_id = mark.span_id.to_bytes(8, "big")
        if parent is not None:
            form.parent_span_id = parent.span_id.to_bytes(8, "big")
        form.start_time_unix_nano = _nanoseconds(span.began)
        form.end_time_unix_nano = _nanoseconds(span.ended)
        for value, told in zip(values, span.attributes.values(), strict=True):
            if type(told) is str:
                value.string_value = told
            elif type(told) is int:
                value.int_value = told
            else:
                raise TypeError(f"neither text nor a number: {told!r}")
        return form

    def _encoded(self, span: "Span", encode: Encode) -> Any:
        return encode([readable(span, self.resource)])


def _spans_in(request: Any) -> Any:
    """Of one resource and one scope, as all of ours are."""
    return request.resource_spans[0].scope_spans[0].spans


class _BatchesToo:
    """OpenTelemetry's encoding, which encodes batches of ours in our way."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode

    def __call__(self, spans: Sequence[ReadableSpan]) -> Any:
        if isinstance(spans, Batch):
            return spans.request(self._encode)
        return self._encode(spans)


def _let_encode_batches(exporter: SpanExporter) -> None:
    """Exporters have no place for an encoding of one's own. Those of OTLP call a function of their
    module, and that is where ours goes; for whoever else calls it, nothing is changed. One that
    calls it no more, or another name, reads the spans of a batch instead."""
    module = sys.modules.get(type(exporter).__module__)
    encode = getattr(module, _ENCODE, None)
    if callable(encode) and not isinstance(encode, _BatchesToo):
        setattr(module, _ENCODE, _BatchesToo(encode))
