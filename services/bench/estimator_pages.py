"""An estimator with far more pages than it keeps in memory: memory, start, outcomes a second."""

import asyncio
import multiprocessing
import resource
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final
from unittest.mock import patch

import click
import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray
from prometheus_client import REGISTRY

from deploy.local.postgres import SETTINGS, EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.bulk_pages import (
    BEGIN,
    PAGES_A_HOST,
    bytes_on_disk,
    fill,
    host_of,
    url_of,
)
from services.bench.estimator_pipeline import RECORD_OVERHEAD, Nowhere
from services.bench.processor_time import usage_of, usage_with_children
from services.bench.real_system import scratch_folder
from services.estimator.compilation import warm_up
from services.estimator.handler import EstimatorHandler
from services.estimator.refitting import Refits
from services.estimator.shard import Shard
from services.estimator.surveying import look_over
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.batches import Batch
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings, load_settings
from shared.store.partitions import FILLFACTOR
from shared.store.snapshot import load_for_learning
from shared.units import SECONDS_PER_DAY as DAY

_MB: Final = 1e6
_GB: Final = 1e9
_WARM_UP_BATCHES: Final = 2
_OTHER_DISK_BYTES: Final = 9e9
"""The server's write-ahead log, and what is left for others."""


def run(
    pages: int,
    resident: int = 1_000_000,
    seconds: float = 20.0,
    pages_a_host: int = PAGES_A_HOST,
    processes: int = 2,
    fillfactor: int = FILLFACTOR,
    shared_buffers: str = SETTINGS["shared_buffers"],
    least_part: int = EstimatorHandler.least_part,
) -> dict[str, Any]:
    """Fill a database with pages of full histories, and measure an estimator that owns them all.

    Args:
        pages: in the database.
        resident: the bound of pages in memory; with as many as `pages` all of them are loaded.
        seconds: how long to measure, after two batches to warm up; outcomes are about any pages,
            as seldom in memory as can be.
        pages_a_host: fewer make a database with as many hosts as a larger one has: memory and start
            are theirs.
        processes: that fill the database.
        fillfactor: percent of the disk's blocks that are filled; 100 puts a fifth more pages onto a
            disk, and makes their first updates dearer than they are in production.
        shared_buffers: of PostgreSQL, as its setting of that name; a server of many pages is to
            have the keys of all of them in memory (`freshet plan`).
        least_part: records of a batch that are stored apart, while the next are applied; with a
            billion all of a batch is stored at once.

    Raises:
        ClickException: the disk is too small for them.

    Returns:
        `start_seconds`, until all shards are there, with the processor time of both sides;
        `memory_mb` after that, and `memory_most_mb` in the end, of which `base_mb` before it;
        `outcomes_per_second`, with how many `outcomes` and `pages_read`; processor time an
        outcome, of the estimator and of PostgreSQL; how long a refit looks through the pages of a
        shard, `survey_seconds_a_shard`; `fill_seconds` and `table_bytes_a_page`.
    """
    _require_disk(pages, fillfactor)
    with scratch_folder() as folder:
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(folder / "postgres", {"shared_buffers": shared_buffers})
        postgres.start()
        try:
            settings = load_settings(database_url=postgres.uri, estimator_resident_pages=resident)
            migrate(postgres.uri, settings.partitions)
            started = time.perf_counter()
            row_bytes = fill(
                settings,
                pages,
                lambda there: _tell(there, pages),
                pages_a_host=pages_a_host,
                processes=processes,
                fillfactor=fillfactor,
            )
            filled = time.perf_counter() - started
            spawning = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, spawning) as process:
                measured = process.submit(
                    _measure,
                    *(settings, pages, seconds, pages_a_host, postgres.process_id or 0, least_part),
                ).result()
        finally:
            postgres.stop()
    return {
        "pages": pages,
        "hosts": -(-pages // pages_a_host),
        "resident": resident,
        "shared_buffers": shared_buffers,
        "fill_seconds": round(filled, 1),
        "table_bytes_a_page": row_bytes,
        **measured,
    }


def _require_disk(pages: int, fillfactor: int) -> None:
    folder, a_page = tempfile.gettempdir(), bytes_on_disk(1, fillfactor)
    free, needed = shutil.disk_usage(folder).free, pages * a_page + _OTHER_DISK_BYTES
    if needed > free:
        raise click.ClickException(
            f"{pages:,} pages take about {needed / _GB:.0f} GB in {folder}, which has "
            f"{free / _GB:.0f}; take {max(free - _OTHER_DISK_BYTES, 0) / a_page:,.0f} of "
            "them, or another folder (TMPDIR)"
        )


def _tell(there: int, pages: int) -> None:
    click.echo(f"{there:,} of {pages:,} pages are in the database", err=True)


def _measure(
    settings: Settings, pages: int, seconds: float, pages_a_host: int, server: int, least_part: int
) -> dict[str, Any]:
    """In a process of its own, whose memory is the estimator's."""
    warm_up()
    # A refit is measured by itself.
    with (
        patch.object(Refits, "are_due", return_value=False),
        patch.object(EstimatorHandler, "least_part", least_part),
    ):
        return asyncio.run(_measured(settings, pages, seconds, pages_a_host, server))


async def _measured(
    settings: Settings, pages: int, seconds: float, pages_a_host: int, server: int
) -> dict[str, Any]:
    sink, clock = Nowhere(), ManualClock(BEGIN)
    handler = EstimatorHandler(settings, clock, sink, asyncio.Event())
    base = _resident_mb()
    started, used = time.perf_counter(), time.process_time()
    used_by_server = usage_with_children(server).seconds
    await handler.open()
    positions = await handler.assigned(set(range(settings.partitions)))
    start = {
        "start_seconds": round(time.perf_counter() - started, 2),
        "start_processor_seconds": round(time.process_time() - used, 2),
        "start_processor_seconds_of_postgres": round(
            usage_with_children(server).seconds - used_by_server, 2
        ),
    }
    loaded = _resident_mb()
    source = Outcomes(settings, pages, dict(positions), pages_a_host)
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
        **start,
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
        pages: NDArray[np.int64] | int,
        offsets: dict[tuple[str, int], int],
        pages_a_host: int = PAGES_A_HOST,
    ) -> None:
        """Begin them.

        Args:
            settings: of who takes them.
            pages: numbers of those that they may be about, or how many, from the first on: a list
                of all would count as the estimator's memory.
            offsets: of the next, by topic and partition.
            pages_a_host: as the database was filled.
        """
        self._settings, self._pages, self._offsets = settings, pages, offsets
        self._pages_a_host = pages_a_host
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
                url=url_of(page, self._pages_a_host),
                crawled_at=clock.time - 3600.0 + 3600.0 * number / count,
                result="changed" if changed[number] else "unchanged",
                http_status=200,
            )
            shard = shard_of(host_of(page // self._pages_a_host), self._settings.partitions)
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
