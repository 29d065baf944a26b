"""A batch of signals: sifted, published, and everything acknowledged before it returns."""

import asyncio
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer, ConsumerRecord

from services.ingester import metrics
from services.ingester.debounce import Debouncer
from services.ingester.refusals import Refusals
from services.ingester.sifting import Sifter, SignalRules
from services.ingester.sources import SourceLimiter
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import PageSignal
from shared.contracts.topics import PAGE_SIGNALS
from shared.runtime import metrics as common_metrics
from shared.runtime.clock import SECONDS_PER_DAY, Clock, SystemClock
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings

STAGE = "ingester"

_SLICE = 2_000
"""Records that are sifted in one go: 20 ms, so that the clients' heartbeats get their turn."""

_CLOCK_SLACK_SECONDS = 5.0
"""Wall seconds by which processes on a simulated clock may disagree about its time."""


def make_sifter(settings: Settings, clock: Clock) -> Sifter:
    """The rules of the settings."""
    real = isinstance(clock, SystemClock)
    slack = 0.0 if real else clock.span(_CLOCK_SLACK_SECONDS)
    rules = SignalRules(
        future_tolerance_seconds=settings.signal_future_tolerance_seconds + slack,
        max_age_seconds=settings.signal_max_age_days * SECONDS_PER_DAY,
        allow_private_hosts=settings.allow_private_hosts,
        record_times_count=real,
        named_sources=frozenset(settings.signal_sources),
    )
    return Sifter(
        rules,
        SourceLimiter(
            settings.signals_per_source_per_second,
            named=rules.named_sources,
            others_per_second=settings.signals_from_others_per_second,
        ),
        Debouncer(settings.signal_debounce_seconds),
    )


class SignalHandler:
    """Turns batches of `signals` into `page-signals` and dead letters."""

    def __init__(self, settings: Settings, clock: Clock, publisher: Publisher) -> None:
        self._settings = settings
        self._clock = clock
        self._publisher = publisher
        self._sifter = make_sifter(settings, clock)
        self._refusals = Refusals(settings.refused_signals_kept_per_second)

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Apply a batch; when this returns, the broker has all that came of it.

        Raises:
            KafkaError: something could not be delivered; the batch must be read again.
        """
        accepted: list[PageSignal] = []
        for start in range(0, len(records), _SLICE):
            piece = records[start : start + _SLICE]
            sifted = self._sifter.sift(piece, self._clock.now())
            accepted += sifted.accepted
            for index, reason in sifted.refused:
                await self._put_aside(piece[index], reason)
            metrics.SIGNALS.labels("accepted").inc(len(sifted.accepted))
            metrics.SIGNALS.labels("refused").inc(len(sifted.refused))
            metrics.SIGNALS.labels("repeated").inc(sifted.repeated)
            metrics.SIGNALS.labels("over_limit").inc(sifted.over_limit)
            metrics.SOURCES.set(self._sifter.sources)
            await asyncio.sleep(0)
        await publish(self._publisher, accepted)
        await self._publisher.flush()

    async def _put_aside(self, record: ConsumerRecord, reason: str) -> None:
        size = len(record.value or b"") + len(record.key or b"")
        text = self._refusals.copied_as(reason, size, time.monotonic())
        if text is None:
            metrics.SIGNALS_NOT_KEPT.inc()
        else:
            await self._publisher.dead_letter(record, STAGE, text)


async def publish(publisher: Publisher, signals: Sequence[PageSignal]) -> None:
    """Publish page signals, each on its host's shard, and wait until the broker has them.

    In prepared batches: a tenth of the cost of one `send` a message.

    Raises:
        KafkaError: something could not be delivered.
    """
    by_shard: dict[int, list[PageSignal]] = {}
    for signal in signals:
        shard = shard_of(signal.host, publisher.settings.partitions)
        by_shard.setdefault(shard, []).append(signal)
    topic = publisher.settings.topic(PAGE_SIGNALS.name)
    await asyncio.gather(
        *(_send(publisher.producer, topic, shard, part) for shard, part in by_shard.items())
    )
    common_metrics.MESSAGES_PUBLISHED.labels(PAGE_SIGNALS.name).inc(len(signals))


async def _send(
    producer: AIOKafkaProducer, topic: str, shard: int, signals: Sequence[PageSignal]
) -> None:
    acknowledgements = []
    batch = producer.create_batch()
    for signal in signals:
        key, value = signal.host.encode(), encode(signal)
        if batch.append(timestamp=None, key=key, value=value) is None:
            acknowledgements.append(await producer.send_batch(batch, topic, partition=shard))
            batch = producer.create_batch()
            batch.append(timestamp=None, key=key, value=value)
    acknowledgements.append(await producer.send_batch(batch, topic, partition=shard))
    await asyncio.gather(*acknowledgements)
