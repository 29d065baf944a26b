"""How long a shard takes from its rows in PostgreSQL to its first picks."""

import asyncio
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa

from deploy.local.kafka import LocalBroker
from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.processor_time import usage_of
from services.bench.real_system import scratch_folder
from services.scheduler.flow.loading import build_shard, shard_rules
from services.scheduler.flow.recovery import read_recent_requests, restore
from services.scheduler.warm_up import warm_up
from services.world.population import Population, generate_population
from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, identify
from shared.contracts.messages import CrawlRequest
from shared.contracts.request_ids import microseconds, request_id_of
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.clock import SystemClock
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.store.import_rows import PageBatch
from shared.store.imports import ROWS_A_BATCH, import_pages
from shared.store.snapshot import load_shard
from shared.units import SECONDS_PER_DAY

SLOTS_PER_SECOND: Final = 10_000.0
_MB: Final = 1e6
_ASKED_AT_ONCE: Final = 5_000
_REAP_SECONDS: Final = 0.3
"""PostgreSQL counts the time of a connection's process once that has ended."""


class _Stages:
    """Seconds of the wall, and of processors, by what they went into."""

    def __init__(self, server: int) -> None:
        self.seconds: dict[str, float] = {}
        self.processor_seconds: dict[str, float] = {}
        self._server = server

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure a block; PostgreSQL's part counts too, once its connection is closed."""
        began, before = time.perf_counter(), self._used()
        yield
        self.seconds[name] = round(time.perf_counter() - began, 3)
        time.sleep(_REAP_SECONDS)
        self.processor_seconds[name] = round(self._used() - before, 3)

    def _used(self) -> float:
        return time.process_time() + usage_of(self._server).with_children


def run(pages: int, in_flight: int) -> dict[str, Any]:
    """Load a shard of so many pages, as a scheduler does that takes it over.

    Args:
        pages: in one shard.
        in_flight: requests on the topic that may not be answered yet.

    Returns:
        `load_seconds` and `load_processor_seconds` in all, and by stage: `snapshot` (PostgreSQL to
        arrays, and most of the tail of `crawl-requests` beside it), `columns` (arrays to a shard),
        `in_flight` (the rest of the tail, and what it says of pages and hosts), and `first_pick`
        (the calendar, and the first slots filled); `import_seconds`; memory.
    """
    warm_up()
    with scratch_folder() as folder:
        folder.chmod(0o711)
        broker = LocalBroker(folder / "broker")
        postgres = EmbeddedPostgres(folder / "postgres")
        broker.start()
        postgres.start()
        try:
            settings = load_settings(
                kafka_bootstrap_servers=broker.bootstrap_servers,
                database_url=postgres.uri,
                partitions=1,
            )
            migrate(postgres.uri, 1)
            began = time.perf_counter()
            now = time.time()
            population = import_population(postgres.uri, pages, now, 1)
            imported = time.perf_counter() - began
            asyncio.run(_ask(settings, population.pages.urls, in_flight))
            del population
            stages = _Stages(postgres.process_id or 0)
            answer = asyncio.run(_load(settings, stages))
        finally:
            postgres.stop()
            broker.stop()
    return {"pages": pages, "import_seconds": round(imported, 1), **answer}


def import_population(url: str, pages: int, now: float, shards: int) -> Population:
    """Import generated pages, those with a copy crawled a day ago; returns them."""
    population = generate_population(pages, 0)
    names = population.pages

    def batches() -> Iterator[PageBatch]:
        for start in range(0, pages, ROWS_A_BATCH):
            rows = slice(start, start + ROWS_A_BATCH)
            crawled_at = np.where(names.held[rows], now - SECONDS_PER_DAY, -np.inf)
            yield PageBatch(
                pa.array(names.urls[rows], pa.string()),
                names.importance[rows],
                names.max_age_days[rows],
                crawled_at,
            )

    import_pages(url, shards, batches(), now=now)
    return population


async def _load(settings: Settings, stages: _Stages) -> dict[str, Any]:
    before, loaded = _memory(), asyncio.Event()
    reading = asyncio.create_task(read_recent_requests(settings, {0}, loaded))
    with stages.measured("snapshot"):
        url = settings.database_url.get_secret_value()
        snapshot = await asyncio.to_thread(load_shard, url, 0)
    with stages.measured("columns"):
        rules = shard_rules(settings, SystemClock())
        shard = await asyncio.to_thread(build_shard, snapshot, rules)
    del snapshot
    with stages.measured("in_flight"):
        loaded.set()
        found = await reading
        waiting = await asyncio.to_thread(restore, shard, found[0])
    first = time.time() + np.arange(1, 1001) / SLOTS_PER_SECOND
    with stages.measured("first_pick"):
        picks = shard.selector.select(first, SLOTS_PER_SECOND, 0.0)
    return {
        "load_seconds": round(sum(stages.seconds.values()), 3),
        "load_processor_seconds": round(sum(stages.processor_seconds.values()), 3),
        "seconds": stages.seconds,
        "processor_seconds": stages.processor_seconds,
        "requests_in_flight": waiting,
        "first_picks": int((picks["row"] >= 0).sum()),
        "hosts": shard.host_count,
        "memory_mb": round(_now_in_memory() / _MB),
        "most_memory_mb": round(_memory() / _MB),
        "memory_before_mb": round(before / _MB),
    }


async def _ask(settings: Settings, urls: Sequence[str], count: int) -> None:
    """Requests of a moment ago, as a scheduler that is gone has left them; some at a time, as the
    memory that is measured is this process's."""
    await ensure_topics(settings, (CRAWL_REQUESTS,))
    random, now = np.random.default_rng(1), time.time()
    rows = random.choice(len(urls), min(count, len(urls)), replace=False)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for first in range(0, rows.size, _ASKED_AT_ONCE):
            pages = [identify(urls[row]) for row in rows[first : first + _ASKED_AT_ONCE].tolist()]
            deadline_at = now + settings.request_timeout_seconds
            messages = [(page.host.encode(), _request(page, now, deadline_at)) for page in pages]
            await publisher.send_batches({(CRAWL_REQUESTS.name, 0): messages})
    finally:
        await publisher.stop()


def _request(page: PageIdentity, now: float, deadline_at: float) -> bytes:
    request_id = request_id_of(0, page.page_id, int(microseconds(now)))
    return encode(
        CrawlRequest(
            request_id, page.page_id, page.url, page.host, now, deadline_at, 1.0, 1.0, "value"
        )
    )


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _now_in_memory() -> float:
    return float(usage_of(os.getpid()).resident_bytes)
