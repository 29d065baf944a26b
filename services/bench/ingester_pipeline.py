"""How many signals a second the ingester passes, on one core."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiokafka import TopicPartition

from services.ingester.handler import SignalHandler, make_sifter
from services.ingester.reading import SignalReader
from shared.contracts.codec import encode
from shared.contracts.messages import Signal
from shared.contracts.topics import DEAD_LETTERS, PAGE_SIGNALS, SIGNALS
from shared.runtime.clock import SystemClock
from shared.runtime.kafka import ensure_topics, make_consumer, make_producer
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings

_BATCH = 10_000
_SOURCES = 20
_HOSTS = 2_000


@dataclass(frozen=True, slots=True)
class _Record:
    value: bytes
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()


def make_signals(count: int, now: float, seed: int = 1) -> list[bytes]:
    """Encoded signals about distinct pages of heavy-tailed hosts."""
    random = np.random.default_rng(seed)
    hosts = np.minimum(random.zipf(1.3, count), _HOSTS)
    return [
        encode(
            Signal(
                f"https://www.host-{host}.example/section/{index % 97}/article-{index}.html",
                f"source-{index % _SOURCES}",
                now,
            )
        )
        for index, host in enumerate(hosts)
    ]


def run(signals: int = 200_000, bootstrap_servers: str | None = None) -> dict[str, Any]:
    """Measure the ingester.

    Args:
        signals: how many.
        bootstrap_servers: a broker to go through as well; topics with a prefix of their own are
            made on it. None: the work in the process only.

    Returns:
        `signals`; `in_process_signals_per_second`: decode, check, name, debounce and encode;
        with a broker `signals_per_second`: from `signals` to acknowledged `page-signals`, with
        the processor seconds that the ingester's side took, `cpu_seconds`, and `dead_letters`.
    """
    settings = load_settings(signals_per_source_per_second=1e9, signals_from_others_per_second=1e9)
    result: dict[str, Any] = {"signals": signals} | _in_process(settings, signals)
    if bootstrap_servers is not None:
        settings = settings.model_copy(
            update={
                "kafka_bootstrap_servers": bootstrap_servers,
                "topic_prefix": f"bench-ingester-{time.time_ns()}-",
            }
        )
        result |= asyncio.run(_through_kafka(settings, signals))
    return result


def _in_process(settings: Settings, signals: int) -> dict[str, Any]:
    now = time.time()
    records = [_Record(value, -1) for value in make_signals(signals, now)]
    sifter = make_sifter(settings, SystemClock())
    sifter.sift([], now)
    started = time.perf_counter()
    for start in range(0, signals, _BATCH):
        for signal in sifter.sift(records[start : start + _BATCH], now).accepted:
            encode(signal)
    return {"in_process_signals_per_second": round(signals / (time.perf_counter() - started))}


async def _through_kafka(settings: Settings, signals: int) -> dict[str, Any]:
    await ensure_topics(settings, (SIGNALS, PAGE_SIGNALS, DEAD_LETTERS))
    await _fill(settings, signals)
    publisher = Publisher(settings)
    await publisher.start()
    handler = SignalHandler(settings, SystemClock(), publisher)
    stopping = asyncio.Event()
    seen = 0
    moments: list[tuple[float, float]] = []

    async def handle(records: Any) -> None:
        nonlocal seen
        if not moments:
            moments.append((time.perf_counter(), time.process_time()))
        await handler.handle(records)
        seen += len(records)
        if seen >= signals:
            moments.append((time.perf_counter(), time.process_time()))
            stopping.set()

    reader = SignalReader(settings, handle)
    await reader.start()
    try:
        await reader.run(stopping)
    finally:
        await reader.stop()
        await publisher.stop()
    (began, cpu_began), (ended, cpu_ended) = moments
    return {
        "signals_per_second": round(signals / (ended - began)),
        "cpu_seconds": round(cpu_ended - cpu_began, 3),
        "dead_letters": await _count_dead_letters(settings),
    }


async def _fill(settings: Settings, signals: int) -> None:
    producer = make_producer(settings)
    await producer.start()
    try:
        for index, value in enumerate(make_signals(signals, time.time())):
            await producer.send(
                settings.topic(SIGNALS.name), value, partition=index % settings.partitions
            )
        await producer.flush()
    finally:
        await producer.stop()


async def _count_dead_letters(settings: Settings) -> int:
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        letters = TopicPartition(settings.topic(DEAD_LETTERS.name), 0)
        return int((await consumer.end_offsets([letters]))[letters])
    finally:
        await consumer.stop()
