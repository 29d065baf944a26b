"""How many outcomes a second the estimator decodes, learns from and writes to PostgreSQL."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka import ConsumerRecord

from migrations.upgrade import migrate
from services.estimator.announcing import Announcements
from services.estimator.decoding import Misplaced, Refused
from services.estimator.handler import EstimatorHandler
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.batches import Batch
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings, load_settings
from shared.store.connection import connect
from shared.store.history import DEPTH, Rings, pack
from shared.store.import_rows import PageBatch
from shared.store.imports import ROWS_A_BATCH, import_pages
from shared.units import SECONDS_PER_DAY as DAY

_BEGIN = 1_700_000_000.0
_PAGES_A_HOST = 200
_HISTORIES = 256
RECORD_OVERHEAD: dict[str, Any] = {
    "timestamp_type": 0,
    "key": None,
    "checksum": None,
    "serialized_key_size": -1,
    "serialized_value_size": -1,
    "headers": (),
}


class Nowhere:
    """Takes the announcements, encoded as they are, and counts them."""

    def __init__(self) -> None:
        self.announced = 0
        self.refused = 0

    async def publish(
        self, announcements: Announcements, refused: Sequence[Refused]
    ) -> dict[tuple[str, int], int]:
        """Count them."""
        self.announced += sum(map(len, announcements.values()))
        self.refused += len(refused)
        return {key: self.announced for key, messages in announcements.items() if messages}

    async def pass_on(self, misplaced: Sequence[Misplaced]) -> None:
        """There are none."""
        self.refused += len(misplaced)


def run(database_url: str, pages: int = 1_000_000, seconds: float = 10.0) -> dict[str, Any]:
    """Measure the estimator behind its consumer: decode, apply, learn, encode, commit.

    Args:
        database_url: an empty database, or one that an earlier run with as many pages filled.
        pages: how many there are; each outcome is about one at random.
        seconds: how long to measure, after two batches to warm up.

    Returns:
        `outcomes_per_second`, with how many `outcomes`, `seconds`, `batches`, `announced`
        parameter changes and `refused` outcomes; `load_seconds`: of all shards into memory;
        `cpu_share`: of one core, in this process without the server.
    """
    settings = load_settings(database_url=database_url)
    migrate(database_url, settings.partitions)
    urls = [_url(page) for page in range(pages)]
    report = import_pages(database_url, settings.partitions, _batches(urls), now=_BEGIN)
    fill_histories(database_url)
    return {"pages": pages, "imported": report.added} | asyncio.run(
        _measure(settings, urls, seconds)
    )


def _url(page: int) -> str:
    host, path = divmod(page, _PAGES_A_HOST)
    return f"https://www.host-{host}.example/section/{path % 97}/article-{page}.html"


def _batches(urls: list[str]) -> Iterator[PageBatch]:
    for begin in range(0, len(urls), ROWS_A_BATCH):
        part = urls[begin : begin + ROWS_A_BATCH]
        shape = len(part)
        yield PageBatch(
            pa.array(part, pa.string()),
            np.ones(shape),
            np.full(shape, np.inf),
            np.full(shape, _BEGIN - 30 * DAY),
        )


def full_history(seed: int = 2) -> bytes:
    """The packed history of a page that was crawled often."""
    random = np.random.default_rng(seed)
    rings = Rings.empty(1)
    rings.interval_days[:] = random.exponential(2.0, DEPTH)
    rings.signals[:, :, 0] = random.poisson(0.5, DEPTH)
    rings.changed[:] = random.random(DEPTH) < 0.3
    rings.seen[:] = DEPTH
    rings.posterior_shape[:] = 4.0
    rings.evidence[:] = 0.5
    return pack(rings, np.zeros(1, np.int64)).arena.tobytes()


def fill_histories(database_url: str) -> None:
    """Give every page a full history: learning then costs what it costs in the long run.

    Neighbours on the disk have different ones, so that what compresses blocks gains no more here
    than elsewhere.
    """
    histories = [full_history(seed) for seed in range(_HISTORIES)]
    with connect(database_url, "bench", autocommit=True) as connection:
        connection.execute(
            "UPDATE pages SET history = given.history, unsignalled_change_rate = 0.15, "
            "signal_evidence = 0.5 "
            "FROM unnest(%s::bytea[]) WITH ORDINALITY AS given(history, number) "
            "WHERE crawls = 0 AND page_id %% %s = number - 1",
            (histories, _HISTORIES),
        )
        connection.execute("VACUUM pages")
        connection.execute("CHECKPOINT")


async def _measure(settings: Settings, urls: list[str], seconds: float) -> dict[str, Any]:
    sink = Nowhere()
    clock = ManualClock(_BEGIN)
    handler = EstimatorHandler(settings, clock, sink, asyncio.Event())
    await handler.open()
    try:
        started = time.perf_counter()
        positions = await handler.assigned(set(range(settings.partitions)))
        load_seconds = time.perf_counter() - started
        source = _Source(settings, urls, dict(positions))
        for _ in range(2):
            await handler.handle(source.batch(clock))
        outcomes = batches = 0
        spent = cpu = 0.0
        while spent < seconds:
            batch = source.batch(clock)
            started, cpu_started = time.perf_counter(), time.process_time()
            await handler.handle(batch)
            spent += time.perf_counter() - started
            cpu += time.process_time() - cpu_started
            outcomes += settings.batch_max_messages
            batches += 1
    finally:
        await handler.close()
    return {
        "outcomes_per_second": round(outcomes / spent),
        "outcomes": outcomes,
        "seconds": round(spent, 3),
        "batches": batches,
        "announced": sink.announced,
        "refused": sink.refused,
        "load_seconds": round(load_seconds, 3),
        "cpu_share": round(cpu / spent, 3),
    }


class _Source:
    """Makes batches of outcomes as the consumer would hand them over."""

    def __init__(
        self, settings: Settings, urls: list[str], offsets: dict[tuple[str, int], int]
    ) -> None:
        self._settings = settings
        self._urls = urls
        self._offsets = offsets
        self._random = np.random.default_rng(1)
        self._shards = [shard_of(identify(url).host, settings.partitions) for url in urls]

    def batch(self, clock: ManualClock) -> Batch:
        """A full batch about random pages, a clock hour after the last one."""
        clock.advance(DAY / 24)
        partitions: dict[int, list[ConsumerRecord]] = {}
        count = self._settings.batch_max_messages
        chosen = self._random.choice(len(self._urls), count, replace=len(self._urls) < count)
        changed = self._random.random(count) < 0.3
        for number, page in enumerate(chosen):
            outcome = CrawlOutcome(
                url=self._urls[page],
                crawled_at=clock.time - 3600.0 + 3600.0 * number / count,
                result="changed" if changed[number] else "unchanged",
                http_status=200,
            )
            shard = self._shards[page]
            key = (CRAWL_OUTCOMES.name, shard)
            offset = self._offsets.get(key, 0)
            self._offsets[key] = offset + 1
            partitions.setdefault(shard, []).append(
                ConsumerRecord(
                    topic=CRAWL_OUTCOMES.name,
                    partition=shard,
                    offset=offset,
                    timestamp=int(clock.time * 1000),
                    value=encode(outcome),
                    **RECORD_OVERHEAD,
                )
            )
        return {CRAWL_OUTCOMES.name: partitions}
