"""An estimator with far more pages than it keeps in memory: memory, start, outcomes a second."""

import asyncio
import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import psycopg
from aiokafka import ConsumerRecord
from numpy.typing import NDArray
from prometheus_client import REGISTRY

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.estimator_pipeline import RECORD_OVERHEAD, Nowhere, full_history
from services.bench.processor_time import usage_of, usage_with_children
from services.bench.real_system import scratch_folder
from services.estimator.compilation import warm_up
from services.estimator.handler import EstimatorHandler
from services.estimator.refitting import Refits
from services.estimator.shard import Shard
from services.estimator.surveying import look_over
from shared.contracts.codec import encode
from shared.contracts.identity import host_id_of, page_id_of, shard_of
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.batches import Batch
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings, load_settings
from shared.store.binary import copy_bytes
from shared.store.columns import host_rules
from shared.store.connection import connect_writer
from shared.store.page_status import ACTIVE, NEVER
from shared.store.snapshot import load_for_learning
from shared.store.writer import HostLimits, write_hosts
from shared.units import SECONDS_PER_DAY as DAY

BEGIN: Final = 1_700_000_000.0
PAGES_A_HOST: Final = 200
_AT_ONCE: Final = 100_000
_MB: Final = 1e6
_WARM_UP_BATCHES: Final = 2


def run(pages: int, resident: int = 1_000_000, seconds: float = 20.0) -> dict[str, Any]:
    """Fill a database with pages of full histories, and measure an estimator that owns them all.

    Args:
        pages: in the database.
        resident: the bound of pages in memory; with as many as `pages` all of them are loaded.
        seconds: how long to measure, after two batches to warm up; outcomes are about any pages,
            as seldom in memory as can be.

    Returns:
        `start_seconds`, until all shards are there; `memory_mb` after that, and `memory_most_mb` in
        the end, of which `base_mb` before it; `outcomes_per_second`, with how many `outcomes` and
        `pages_read`; processor time an outcome, of the estimator and of PostgreSQL; how long a
        refit looks through the pages of a shard, `survey_seconds_a_shard`; `fill_seconds` and
        `table_bytes_a_page`.
    """
    with scratch_folder() as folder:
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start()
        try:
            settings = load_settings(database_url=postgres.uri, estimator_resident_pages=resident)
            migrate(postgres.uri, settings.partitions)
            started = time.perf_counter()
            row_bytes = fill(settings, pages)
            filled = time.perf_counter() - started
            spawning = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, spawning) as process:
                measured = process.submit(
                    _measure, settings, pages, seconds, postgres.process_id or 0
                ).result()
        finally:
            postgres.stop()
    return {
        "pages": pages,
        "resident": resident,
        "fill_seconds": round(filled, 1),
        "table_bytes_a_page": row_bytes,
        **measured,
    }


def host_of(number: int) -> str:
    """Name of a host of the benchmark."""
    return f"www.host-{number}.example"


def _url(page: int) -> str:
    host, path = divmod(page, PAGES_A_HOST)
    return f"https://{host_of(host)}/section/{path % 97}/article-{page}.html"


def fill(settings: Settings, pages: int) -> float:
    """Write hosts and pages, shard by shard; bytes of a page's row."""
    count = -(-pages // PAGES_A_HOST)
    shards = np.array([shard_of(host_of(n), settings.partitions) for n in range(count)], np.int16)
    with connect_writer(settings.database_url.get_secret_value(), "bench") as connection:
        connection.autocommit = True
        for shard in range(settings.partitions):
            hosts = np.flatnonzero(shards == shard)
            for begin in range(0, hosts.size, _AT_ONCE // PAGES_A_HOST):
                _fill_hosts(connection, shard, hosts[begin : begin + _AT_ONCE // PAGES_A_HOST])
        connection.execute("VACUUM (FREEZE, ANALYZE) pages, page_urls, hosts")
        connection.execute("CHECKPOINT")
        row = connection.execute(
            "SELECT sum(pg_relation_size(inhrelid))::float8 FROM pg_inherits "
            "WHERE inhparent = 'pages'::regclass"
        ).fetchone()
    return round(float(row[0]) / pages, 1) if row else 0.0


def _fill_hosts(connection: psycopg.Connection, shard: int, hosts: NDArray[np.int64]) -> None:
    names = [host_of(number) for number in hosts.tolist()]
    ids = np.array([host_id_of(name) for name in names], np.int64)
    numbers = (hosts[:, np.newaxis] * PAGES_A_HOST + np.arange(PAGES_A_HOST)).reshape(-1)
    urls = [_url(page) for page in numbers.tolist()]
    page_ids = np.array([page_id_of(url) for url in urls], np.int64)
    owners = np.repeat(ids, PAGES_A_HOST)
    order = np.argsort(page_ids)
    values = _values(shard, page_ids[order], owners[order])
    by_id = np.argsort(ids)
    limits = HostLimits(
        np.full(ids.size, shard, np.int16),
        ids[by_id],
        [names[place] for place in by_id.tolist()],
        host_rules(ids.size),
        np.full(ids.size, NEVER),
    )
    rows = copy_bytes(list(values.values()))
    lines = "".join([f"{shard}\t{page_ids[place]}\t{urls[place]}\n" for place in order.tolist()])
    # All is made before: a transaction that waits for this side is ended by the server.
    with connection.transaction():
        write_hosts(connection, limits)
        statement = f"COPY pages ({', '.join(values)}) FROM STDIN (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            copy.write(rows)
        with connection.cursor() as cursor, cursor.copy("COPY page_urls FROM STDIN") as copy:
            copy.write(lines)


def _values(
    shard: int, page_ids: NDArray[np.int64], host_ids: NDArray[np.int64]
) -> dict[str, NDArray[Any] | bytes]:
    """The columns of pages that were crawled often."""
    count = page_ids.size
    floats = {
        "importance": 1.0,
        "max_age_days": np.inf,
        "unsignalled_change_rate": 0.15,
        "signal_evidence": 0.5,
        "signal_rate": 0.0,
        "first_seen_at": BEGIN - 90 * DAY,
        "last_crawled_at": BEGIN - DAY,
        "last_attempt_at": BEGIN - DAY,
        "last_changed_at": BEGIN - 9 * DAY,
        "last_signal_at": NEVER,
        "updated_at": BEGIN - 90 * DAY,
        "urgent_at": NEVER,
    }
    counts = {"signals": 0, "crawls": 16, "changes": 5, "failures": 0}
    return {
        "shard": np.full(count, shard, np.int16),
        "page_id": page_ids,
        "host_id": host_ids,
        **{name: np.full(count, value) for name, value in floats.items()},
        **{name: np.full(count, value, np.int64) for name, value in _WIDE.items()},
        **{name: np.full(count, value, np.int32) for name, value in counts.items()},
        "misses": np.zeros(count, np.int16),
        "status": np.full(count, ACTIVE, np.int16),
        "history": full_history(),
    }


_WIDE: Final = {"digest": 0, "signal_count": 0}


def _measure(settings: Settings, pages: int, seconds: float, server: int) -> dict[str, Any]:
    """In a process of its own, whose memory is the estimator's."""
    warm_up()
    # A refit is measured by itself.
    with patch.object(Refits, "are_due", return_value=False):
        return asyncio.run(_measured(settings, pages, seconds, server))


async def _measured(settings: Settings, pages: int, seconds: float, server: int) -> dict[str, Any]:
    sink, clock = Nowhere(), ManualClock(BEGIN)
    handler = EstimatorHandler(settings, clock, sink, asyncio.Event())
    base = _resident_mb()
    started = time.perf_counter()
    await handler.open()
    positions = await handler.assigned(set(range(settings.partitions)))
    start_seconds = time.perf_counter() - started
    loaded = _resident_mb()
    source = Outcomes(settings, np.arange(pages), dict(positions))
    outcomes, spent, own, servers = 0, 0.0, 0.0, 0.0
    try:
        for turn in range(1_000_000):
            batch = source.batch(clock)
            started, used = time.perf_counter(), time.process_time()
            used_by_server = usage_with_children(server).seconds
            await handler.handle(batch)
            if turn < _WARM_UP_BATCHES:
                continue
            spent += time.perf_counter() - started
            own += time.process_time() - used
            servers += usage_with_children(server).seconds - used_by_server
            outcomes += settings.batch_max_messages
            if spent >= seconds:
                break
    finally:
        await handler.close()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "start_seconds": round(start_seconds, 2),
        "base_mb": round(base),
        "memory_mb": round(loaded),
        "memory_most_mb": round(most),
        "outcomes_per_second": round(outcomes / spent),
        "processor_us_an_outcome": round(1e6 * own / outcomes, 1),
        "processor_us_an_outcome_of_postgres": round(1e6 * servers / outcomes, 1),
        "outcomes": outcomes,
        "seconds": round(spent, 2),
        "announced": sink.announced,
        "refused": sink.refused,
        "pages_in_memory": REGISTRY.get_sample_value("freshet_estimator_pages"),
        "pages_read": REGISTRY.get_sample_value("freshet_estimator_pages_read_total"),
        "survey_seconds_a_shard": round(_survey(settings), 2),
    }


def _survey(settings: Settings) -> float:
    """Seconds in which a shard is looked through for a refit."""
    url = settings.database_url.get_secret_value()
    shard = Shard.load(load_for_learning(url, 0, 0))
    started = time.perf_counter()
    look_over(url, shard.number, shard.epoch, shard.hosts)
    return time.perf_counter() - started


def _resident_mb() -> float:
    return usage_of(multiprocessing.current_process().pid or 0).resident_bytes / _MB


class Outcomes:
    """Batches of outcomes about any pages, as a consumer would hand them over."""

    def __init__(
        self,
        settings: Settings,
        pages: NDArray[np.int64],
        offsets: dict[tuple[str, int], int],
    ) -> None:
        """Begin them.

        Args:
            settings: of who takes them.
            pages: numbers of those that they may be about.
            offsets: of the next, by topic and partition.
        """
        self._settings, self._pages, self._offsets = settings, pages, offsets
        self._random = np.random.default_rng(1)

    def batch(self, clock: ManualClock) -> Batch:
        """A full batch, a clock hour after the last one."""
        clock.advance(DAY / 24)
        partitions: dict[int, list[ConsumerRecord]] = {}
        count = self._settings.batch_max_messages
        chosen = self._random.choice(self._pages, count)
        changed = self._random.random(count) < 0.3
        for number, page in enumerate(chosen.tolist()):
            outcome = CrawlOutcome(
                url=_url(page),
                crawled_at=clock.time - 3600.0 + 3600.0 * number / count,
                result="changed" if changed[number] else "unchanged",
                http_status=200,
            )
            shard = shard_of(host_of(page // PAGES_A_HOST), self._settings.partitions)
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
