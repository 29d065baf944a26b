"""What traces cost each worker, switched on and off in turn within one run."""

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from services.bench.tracing_work import WORKS, Work
from services.plan.coefficients import read_measured
from shared.runtime.tracing import SPANS_PER_SECOND, Mark, Span, Tracing
from shared.runtime.worker import spare_collector

if TYPE_CHECKING:
    from shared.runtime.span_export import Batch

_WARM_TURNS: Final = 4
_PLACES: Final = 4
"""In so many turns each arm is the first twice, and has each place in memory twice
(`tracing_work`): all that makes some percent of difference, and is none of the traces'."""

_WHOLE: Final = {
    "ingester": "ingester_cores_a_signal",
    "scheduler": "scheduler_cores_a_crawl",
    "estimator": "estimator_cores_a_crawl",
}
"""Worker → the coefficient of `freshet plan` that says what all of it takes for a message."""

_ANY_NUMBER: Final = 1e9
_MOST_SPANS: Final = 1_000_000
_BATCH_SPANS: Final = 250
"""As many as a process makes in the five seconds after which its spans are sent."""


def run(pages: int = 20_000, share: float = 0.01, turns: int = 200) -> dict[str, Any]:
    """Measure the processor time of each worker's work with traces over that without.

    Each turn does the same work twice, with and without, in an order that changes from turn to
    turn. What spans cost until they are bytes for the backend is in it, sending these is not: they
    are encoded by the batch, as in a worker, where one is made every five seconds, and each turn
    bears its spans' part of that. Of the workers' work it is what grows with messages: no broker,
    no server, no ticks.

    Args:
        pages: that the scheduler and the estimator have.
        share: of signals and requests that are traced.
        turns: pairs to measure, at least; four times as many as there are ratios.

    Returns:
        `share`, `turns`; by worker: `cost`: the time with traces over the time without, less 1, as
        the median over the geometric means of four turns each; `low`, `high`: bounds of that
        median, at 95 %; `of_the_worker`: the same of all that a worker takes for a message, as
        `freshet plan` knows it; `microseconds` of a message without; `spans` of a thousand
        messages; `span_encoding`: microseconds of that of a span. Of spans there are as many as a
        process may make in the time of the work that is measured. `any_number`: the same where it
        may make any number. `none_sampled`: the same where traces are on, and nothing is traced.
    """
    turns += -turns % _PLACES
    made = {limit: asyncio.run(_run(pages, share, turns, limit)) for limit in _LIMITS}
    none_sampled = asyncio.run(_run(pages, 0.0, turns, SPANS_PER_SECOND))
    return {
        "share": share,
        "turns": turns,
        **made[SPANS_PER_SECOND],
        "any_number": made[_ANY_NUMBER],
        "none_sampled": none_sampled,
    }


_LIMITS: Final = (SPANS_PER_SECOND, _ANY_NUMBER)


async def _run(pages: int, share: float, turns: int, limit: float) -> dict[str, Any]:
    answer = {}
    for name, kind in WORKS.items():
        sink = _Sink()
        tracing = _WhileMeasured(share, sink.take, spans_per_second=limit)
        work = kind(pages, tracing)
        with _collector_as_in_workers():
            answer[name] = await _measure(work, tracing, sink, turns)
        whole = 1e6 * read_measured()[_WHOLE[name]].value
        found = answer[name]
        found["of_the_worker"] = round(found["cost"] * found["microseconds"] / whole, 5)
    return answer


class _WhileMeasured(Tracing):
    """The limit is one of seconds: of those of the work, and not of those of its preparation."""

    seconds = 0.0
    """That have been measured with traces."""

    def room(self, now: float) -> int:  # noqa: ARG002
        """As the worker's, by the time of the work."""
        return super().room(self.seconds)

    def start(
        self, name: str, parent: Mark | None, began: float, now: float, **attributes: Any
    ) -> Span | None:
        """As the worker's, by the time of the work."""
        began, now = self.seconds, self.seconds
        return super().start(name, parent, began, now, **attributes)


@contextmanager
def _collector_as_in_workers() -> Iterator[None]:
    """Otherwise what spans are encoded from has it look through all pages again and again."""
    before = gc.get_threshold()
    spare_collector()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _measure(
    work: Work, tracing: _WhileMeasured, sink: "_Sink", turns: int
) -> dict[str, float]:
    seconds: dict[bool, list[float]] = {True: [], False: []}
    spans = []
    for turn in range(_WARM_TURNS + turns):
        work.prepare()
        before = sink.taken
        for is_on in (True, False) if turn % 2 else (False, True):
            started = time.process_time()
            await work.do(is_on=is_on)
            seconds[is_on].append(time.process_time() - started)
        tracing.seconds += seconds[True][-1]
        spans.append(sink.taken - before)
    encoding = sink.seconds_a_span()
    having = [on + encoding * count for on, count in zip(seconds[True], spans, strict=True)]
    without = seconds[False][_WARM_TURNS:]
    each = np.log(having[_WARM_TURNS:]) - np.log(without)
    ratios = np.exp(each.reshape(-1, _PLACES).mean(axis=1)).tolist()
    low, high = _bounds(ratios)
    return {
        "cost": round(statistics.median(ratios) - 1.0, 5),
        "low": round(low - 1.0, 5),
        "high": round(high - 1.0, 5),
        "microseconds": round(1e6 * statistics.median(without) / work.messages, 3),
        "spans": round(1000.0 * sum(spans[_WARM_TURNS:]) / (turns * work.messages), 2),
        "span_encoding": round(1e6 * encoding, 2),
    }


def _bounds(values: list[float]) -> tuple[float, float]:
    """Of the median, by the order of the values: 95 of 100 such bounds have it between them."""
    ordered, middle = sorted(values), len(values) / 2
    reach = 0.98 * len(values) ** 0.5
    last = len(values) - 1
    return ordered[max(int(middle - reach), 0)], ordered[min(int(middle + reach), last)]


class _Sink:
    """Takes spans as a worker's queue does, and makes of them what goes to a backend."""

    def __init__(self) -> None:
        # Here, as they are no part of every installation.
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import (  # noqa: PLC0415
            encode_spans,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        from shared.runtime.span_export import SpanExport  # noqa: PLC0415

        self.taken = 0
        self._encode = encode_spans
        exporter: Any = self
        # No batch but those that are asked for: one in the midst of a turn would be of many.
        export = SpanExport(exporter, Resource.create({}))
        self._queue = BatchSpanProcessor(export, _MOST_SPANS, 1e9, _MOST_SPANS)

    def take(self, span: Any) -> None:
        """Queue a span."""
        self.taken += 1
        self._queue.on_end(span)

    def export(self, batch: "Batch") -> None:
        """Encode spans, as an exporter does."""
        for begin in range(0, len(batch), _BATCH_SPANS):
            batch[begin : begin + _BATCH_SPANS].request(self._encode).SerializeToString()

    def seconds_a_span(self) -> float:
        """Encode what is queued."""
        started = time.process_time()
        self._queue.force_flush()
        return (time.process_time() - started) / self.taken if self.taken else 0.0
