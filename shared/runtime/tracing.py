"""Traces of a share of pages: from a signal over the request to the outcome that is stored.

A trace goes from worker to worker, and over the crawlers and back, in the header `traceparent` of a
record, as the W3C's Trace Context has it (https://www.w3.org/TR/trace-context/). What is seen of it
goes to a backend by OpenTelemetry, whose own variables (OTEL_*) say where to.

It is off unless `trace_share` is set; then nothing of OpenTelemetry is even loaded. Where it is on,
only records with a header cost anything. A span is an object of our own until it is encoded, a
batch at a time (`shared.runtime.span_export`): a tracer's `start_span` and `end` alone cost 23 µs.
"""

import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, count, islice
from operator import attrgetter
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from shared.runtime.dead_letters import Header
from shared.runtime.secret_files import SecretFileError, lent_to_environment
from shared.runtime.settings import Settings, SettingsError
from shared.units import SECONDS_PER_DAY

HEADER: Final = "traceparent"

RECEIVED: Final = "signal received"
"""By an ingester: from when the record came to when the broker has its page-signal."""
APPLIED: Final = "signal applied"
"""By a scheduler: from when the page-signal came to when the page's value has it."""
REQUESTED: Final = "crawl requested"
"""By a scheduler: from the pick to when the producer has the request."""
STORED: Final = "outcome stored"
"""By an estimator: from when the outcome came to when its effects are committed."""

SPANS_PER_SECOND: Final = 50.0
"""Of a process at most: what is beyond is left out, whatever is sent to it. All of it costs less
than a hundredth of a core then."""

BURST_SECONDS: Final = 2.0
"""So many seconds' worth of spans may come at once: a batch is read at once."""

OLDEST_SECONDS: Final = SECONDS_PER_DAY
"""A span begins at most so long before it ends: a record's time is its sender's word."""

STOP_SECONDS: Final = 2.0
"""What could not be exported within this at a stop is left out."""

_FORM: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.{0,200})?")
_SAMPLED: Final = 1
_HEADERS: Final = attrgetter("headers")
_PACKAGES: Final = "pip install '.[traces]' in a checkout of Freshet"
_SECRETS: Final = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
"""Of OpenTelemetry's variables: files may give them, as all our secrets."""
_EXPORTERS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


class Mark(NamedTuple):
    """A place in a trace: the span that comes next is its child."""

    trace_id: int
    """128 bits, not 0."""
    span_id: int
    """64 bits, not 0."""

    def headers(self) -> list[Header]:
        """What a record carries, so that its reader goes on with the trace."""
        return [(HEADER, b"00-%032x-%016x-%02x" % (*self, _SAMPLED))]


class Record(Protocol):
    """What is needed of a Kafka record."""

    @property
    def headers(self) -> Sequence[Header]:
        """Names and values."""
        ...


R = TypeVar("R", bound=Record)


def mark_in(headers: Iterable[Header]) -> Mark | None:
    """The mark that a record carries; None: none, none that can be read, or one of a trace that
    nobody samples. The first header of the name counts."""
    for name, value in headers:
        if name == HEADER:
            return _parsed(value)
    return None


def _parsed(value: bytes | None) -> Mark | None:
    found = _FORM.fullmatch(value) if value is not None else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    mark = Mark(int(trace_id, 16), int(span_id, 16))
    return mark if int(flags, 16) & _SAMPLED and all(mark) else None


def marks_of(records: Sequence[Record]) -> Iterator[tuple[int, Mark]]:
    """The places of records that carry a mark, and their marks; others cost next to nothing.

    To be looked for before a batch is read for other ends: who reads all records first has them
    brought into the processor's cache for the others. Afterwards they are not there any more, and
    looking costs five times as much.
    """
    for place in compress(count(), map(_HEADERS, records)):
        mark = mark_in(records[place].headers)
        if mark is not None:
            yield place, mark


@dataclass(slots=True)
class Allowance:
    """Tokens, so many a second."""

    per_second: float
    tokens: float = field(init=False)
    filled_at: float | None = None

    def __post_init__(self) -> None:
        """Begin with all that may come at once."""
        self.tokens = self.per_second * BURST_SECONDS

    def at(self, now: float) -> float:
        """How many there are; `now` in seconds."""
        gained = max(now - self.filled_at, 0.0) if self.filled_at is not None else 0.0
        return min(self.tokens + gained * self.per_second, self.per_second * BURST_SECONDS)

    def take(self, now: float) -> bool:
        """Take one, if there is one."""
        self.tokens, self.filled_at = self.at(now), now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class Lot:
    """Which of many begin a trace: a share of them, by chance."""

    def __init__(self, share: float, random: Random) -> None:
        self.share = share
        self._random = random
        self._owed = 0

    def owe(self, number: int) -> None:
        """So many were traced without a lot; as many less are drawn from now on."""
        self._owed += number

    def draw(self, among: int, but: Collection[int] = ()) -> list[int]:
        """The places of those that are drawn, rising; some, which are traced anyway, are not."""
        # On average a share of them, whatever the sizes of batches are: the fraction is by chance.
        drawn = int(self.share * among + self._random.random())
        owed = min(drawn, self._owed)
        self._owed -= owed
        if drawn == owed:
            return []
        places: Sequence[int] = range(among)
        if but:
            places = [place for place in places if place not in but]
        return sorted(self._random.sample(places, min(drawn - owed, len(places))))


@dataclass(slots=True)
class Span:
    """Something under way that will be seen once it is over; what never ends is never seen."""

    context: ClassVar[Any] = SimpleNamespace(trace_flags=SimpleNamespace(sampled=True))
    """All that OpenTelemetry's queue asks of a span: whether it is sampled."""

    take: "Callable[[Span], None]"
    """Gets it when it is over."""
    name: str
    parent: Mark | None
    mark: Mark
    began: float
    """Unix seconds of the wall."""
    attributes: Mapping[str, Any]
    """What is told of it, each as `freshet.<name>`."""
    ended: float = 0.0
    """As `began`; nothing before its end."""

    def end(self, ended: float) -> None:
        """It is over, at a time in Unix seconds of the wall."""
        self.ended = max(ended, self.began)
        self.take(self)


class Tracing:
    """Spans of a worker, on their way to the backend. Safe to use from several threads."""

    def __init__(
        self,
        share: float,
        take: Callable[[Span], None],
        *,
        close: Callable[[], None] = lambda: None,
        random: Random | None = None,
        spans_per_second: float = SPANS_PER_SECOND,
    ) -> None:
        """Make it.

        Args:
            share: of signals and requests that begin a trace.
            take: gets each span that is over; must not block.
            close: exports what is left.
            random: makes ids and draws lots; absent: as chance will have it.
            spans_per_second: at most.
        """
        self.share = share
        self.random = random or Random()  # noqa: S311 - no secrets
        self._take, self._close = take, close
        self._allowance = Allowance(spans_per_second)
        self._lock = threading.Lock()

    def lot(self) -> Lot:
        """By which it is drawn what begins a trace."""
        return Lot(self.share, self.random)

    def room(self, now: float) -> int:
        """How many spans may begin now: for what is beyond, nothing need be read or made."""
        return int(self._allowance.at(now))

    def start(
        self, name: str, parent: Mark | None, began: float, now: float, **attributes: Any
    ) -> Span | None:
        """Begin a span; None: there are too many, and this one is left out.

        Args:
            name: `RECEIVED`, ...
            parent: what it follows; None: it begins a trace.
            began: when, Unix seconds of the wall; a record's time is believed within reason.
            now: the same.
            attributes: what is told of it, each as `freshet.<name>`.
        """
        with self._lock:
            if not self._allowance.take(now):
                return None
            trace_id = parent.trace_id if parent is not None else self._id(128)
            mark = Mark(trace_id, self._id(64))
        began = min(max(began, now - OLDEST_SECONDS), now)
        return Span(self._take, name, parent, mark, began, attributes)

    def close(self) -> None:
        """Export what is left, if the backend takes it in time."""
        # A daemon's thread: a backend that does not answer must not hold up the end.
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(STOP_SECONDS)

    def _id(self, bits: int) -> int:
        return self.random.getrandbits(bits) or 1


Traced = Sequence[tuple[R, Mark]]
"""Records that are traced, and their marks."""


def traced_in(tracing: Tracing, parts: Iterable[Sequence[R]], now: float) -> list[tuple[R, Mark]]:
    """What of a batch is traced, as much as there is room for. To be called before the batch is
    applied (`marks_of`).

    Args:
        tracing: of the process.
        parts: of the batch.
        now: Unix seconds of the wall.
    """
    found: list[tuple[R, Mark]] = []
    if room := tracing.room(now):
        for part in parts:
            found += [
                (part[place], mark) for place, mark in islice(marks_of(part), room - len(found))
            ]
    return found


def make_tracing(settings: Settings, worker: str) -> Tracing | None:
    """What a worker traces with; None: traces are off.

    Raises:
        SettingsError: they are on, and OpenTelemetry's SDK or its exporter is not installed, or a
            file with headers cannot be read.
    """
    # OpenTelemetry's rule: what is empty is not set.
    environment = {name: value for name, value in os.environ.items() if value}
    exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not settings.trace_share or is_disabled or exporter == "none":
        return None
    try:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f"FRESHET_TRACE_SHARE is set, and OpenTelemetry's SDK is missing: {_PACKAGES}"
        ) from error
    from shared.runtime.span_export import SpanExport  # noqa: PLC0415 - a worker without traces

    own = {"service.name": f"freshet-{worker}", "service.instance.id": settings.instance}
    given = OTELResourceDetector().detect().attributes
    resource = Resource.create(own | dict(given))
    try:
        with lent_to_environment(_SECRETS):
            made = _load_exporter(exporter, environment)
    except SecretFileError as error:
        raise SettingsError(str(error)) from error
    queue: Any = BatchSpanProcessor(SpanExport(made, resource))
    return Tracing(settings.trace_share, queue.on_end, close=queue.shutdown)


def _load_exporter(name: str, environment: Mapping[str, str]) -> Any:
    """The exporter that OpenTelemetry's variables name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it looks at all packages

    if name == "otlp":
        common = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", common)
        name = _EXPORTERS.get(protocol, protocol)
    found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        raise SettingsError(
            f"FRESHET_TRACE_SHARE is set, and no package brings OpenTelemetry's exporter {name!r} "
            f"(OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL): {_PACKAGES} brings that of gRPC"
        )
    return found[0].load()()
