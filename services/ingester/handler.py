"""A batch of signals: sifted, published, and everything acknowledged before it returns."""

import asyncio
import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from aiokafka import ConsumerRecord

from services.ingester import metrics
from services.ingester.debounce import Debouncer
from services.ingester.refusals import Refusals
from services.ingester.sifting import Sifter, SignalRules
from services.ingester.sources import SourceLimiter
from services.ingester.traces import SignalTraces
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import PageSignal
from shared.contracts.topics import PAGE_SIGNALS
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.isolation import Pieces, reason_of
from shared.runtime.kafka import may_pass
from shared.runtime.pings import KEY_HEADER
from shared.runtime.publisher import ByPlace, HeadersByPlace, Place, Publisher
from shared.runtime.retrying import Attempts, until_it_passes
from shared.runtime.settings import Settings
from shared.runtime.signal_bounds import SignalBounds
from shared.runtime.tracing import Span, Tracing
from shared.runtime.wall_time import WALL

log = structlog.get_logger(__name__)

STAGE = "ingester"

Refused = tuple[ConsumerRecord, str]
"""A record, and why it is refused."""


def make_sifter(settings: Settings, clock: Clock) -> Sifter:
    """A sifter by the rules of the settings."""
    return Sifter(*make_rules(settings, clock), Debouncer(settings.signal_debounce_seconds))


def make_rules(settings: Settings, clock: Clock) -> tuple[SignalRules, SourceLimiter]:
    """The rules of the settings, and full buckets."""
    real = isinstance(clock, SystemClock)
    keys = {
        source: key.get_secret_value().encode()
        for source, key in settings.signal_source_keys.items()
    }
    rules = SignalRules(
        bounds=SignalBounds.of(settings, clock),
        record_times_count=real,
        named_sources=frozenset(settings.signal_sources) | keys.keys(),
        source_keys=keys,
    )
    limiter = SourceLimiter(
        settings.signals_per_source_per_second,
        named=rules.named_sources,
        others_per_second=settings.signals_from_others_per_second,
        others_share=settings.signals_from_others_share,
    )
    return rules, limiter


@dataclass(slots=True)
class _Work:
    """What comes of a batch."""

    shards: int
    messages: ByPlace = field(default_factory=dict)
    headers: HeadersByPlace = field(default_factory=dict)
    """Of those that are traced."""
    spans: list[Span] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    _by_host: dict[str, tuple[bytes, list[tuple[bytes, bytes]]]] = field(default_factory=dict)
    """Host → its key, and the list that its messages are added to."""

    def add(self, signals: Sequence[PageSignal], spans: Mapping[int, Span]) -> None:
        """Put signals where they belong, as keys and values; some are traced, by their places."""
        begin = 0
        for place in sorted(spans):
            self._add(signals[begin:place])
            begin, target = place, self._target_of(signals[place].host)
            number = len(self.messages.get(target, ()))
            self.headers.setdefault(target, {})[number] = spans[place].mark.headers()
            self.spans.append(spans[place])
        self._add(signals[begin:])

    def _add(self, signals: Sequence[PageSignal]) -> None:
        by_host = self._by_host
        for signal in signals:
            found = by_host.get(signal.host)
            if found is None:
                part = self.messages.setdefault(self._target_of(signal.host), [])
                found = by_host[signal.host] = signal.host.encode(), part
            found[1].append((found[0], encode(signal)))

    def _target_of(self, host: str) -> Place:
        return (PAGE_SIGNALS.name, shard_of(host, self.shards))


class SignalHandler:
    """Turns batches of `signals` into `page-signals` and dead letters."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        publisher: Publisher,
        tracing: Tracing | None = None,
    ) -> None:
        self._clock = clock
        self._publisher = publisher
        self.traces = SignalTraces(tracing) if tracing is not None else None
        """None: they are off."""
        self._sifter = make_sifter(settings, clock)
        self._refusals = Refusals(settings.refused_signals_kept_per_second)
        self.trouble: str | None = None
        """Why nothing goes on; None: all is well."""
        self.progressed_at = time.monotonic()
        """Wall time at which a piece was last sifted or published, for the watchdog."""

    def take_settings(self, settings: Settings) -> None:
        """Let keys, names and limits of sources hold; all buckets are full again."""
        self._sifter.go_by(*make_rules(settings, self._clock))
        self._refusals.per_second = settings.refused_signals_kept_per_second

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Apply a batch; when this returns, the broker has all that came of it. Waits for it.

        Raises:
            KafkaError: something will never be delivered; the batch must be read again.
        """
        shards = 0
        async for attempt in self._attempts():
            with attempt:
                shards = await self._publisher.partitions_of(PAGE_SIGNALS)
        work = await asyncio.to_thread(self._work, records, shards)
        # Only this is tried again: a batch that is sifted once more would be all repetitions.
        async for attempt in self._attempts():
            with attempt:
                await self._publisher.send_batches(work.messages, own=work.headers)
        ended = WALL.now()
        for span in work.spans:
            span.end(ended)
        letters = list(self._copied(work.refused))
        async for attempt in self._attempts():
            with attempt:
                for record, reason in letters:
                    await self._publisher.dead_letter(record, STAGE, reason)
                await self._publisher.flush()
        self.trouble = None

    def _attempts(self) -> Attempts:
        return until_it_passes(None, may_pass, self._note_failure)

    def _note_failure(self, error: BaseException) -> None:
        self.progressed_at = time.monotonic()
        self.trouble = f"the broker cannot be written: {error!r}"
        log.warning("signals not published yet, trying again", error=repr(error))

    def _work(self, records: Sequence[ConsumerRecord], shards: int) -> _Work:
        """The work of the processor, in a thread."""
        work = _Work(shards)
        pieces = Pieces(records)
        for piece in pieces:
            self.progressed_at = time.monotonic()
            traces = self.traces
            headed: list[int] | None = None if traces is None else []
            try:
                sifted = self._sifter.sift(piece, self._clock.now(), headed)
            except Exception as error:
                if not pieces.split(piece):
                    log.exception("a signal always fails and is set aside")
                    work.refused.append((piece[0], reason_of(error)))
                continue
            accepted = sifted.accepted
            spans = traces.begun(piece, accepted, headed or (), WALL.now()) if traces else {}
            work.add(accepted, spans)
            work.refused += [(piece[index], reason) for index, reason in sifted.refused]
            metrics.SIGNALS.labels("accepted").inc(len(accepted))
            metrics.SIGNALS.labels("refused").inc(len(sifted.refused))
            metrics.SIGNALS.labels("repeated").inc(sifted.repeated)
            metrics.SIGNALS.labels("over_limit").inc(sifted.over_limit)
            for source, delays in sifted.delays.items():
                metrics.TIMED_SIGNALS.labels(source).inc(len(delays))
                metrics.DELAY_SECONDS.labels(source).inc(sum(delays))
        metrics.SOURCES.set(self._sifter.sources)
        return work

    def _copied(self, refused: Iterable[Refused]) -> Iterator[Refused]:
        """What is kept of refused records."""
        for record, reason in refused:
            text = self._refusals.copied_as(reason, _bytes_of(record), time.monotonic())
            if text is None:
                metrics.SIGNALS_NOT_KEPT.inc()
            else:
                yield _without_key(record), text


def _bytes_of(record: ConsumerRecord) -> int:
    """What a copy of it takes."""
    headers = sum(len(name) + len(content or b"") for name, content in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def _without_key(record: ConsumerRecord) -> ConsumerRecord:
    """The record without its source's key, which readers of dead letters must not learn."""
    if not any(name == KEY_HEADER for name, _ in record.headers):
        return record
    without = copy.copy(record)
    without.headers = tuple(header for header in record.headers if header[0] != KEY_HEADER)
    return without
