"""Putting a world's pages into the database of the system that is to crawl them."""

import asyncio
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from services.world.pages import WorldPages
from services.world.plan import WorldPlan
from services.world.worker import load_world
from shared.runtime.settings import Settings
from shared.store.import_rows import ImportReport, PageBatch
from shared.store.imports import ROWS_A_BATCH, import_pages

Progress = Callable[[int, int], None]
"""Told how many pages are in, of how many."""


async def import_world(settings: Settings, plan: WorldPlan, progress: Progress) -> int:
    """Import the pages of a world; returns how many.

    Args:
        settings: whose clock's origin is day 0 of the world.

    Raises:
        TraceError: the trace cannot be read.
    """

    def load() -> int:
        pages, _ = load_world(plan)
        report = import_pages(
            settings.database_url.get_secret_value(),
            settings.partitions,
            _batches(pages, settings.clock_origin),
            now=settings.clock_origin,
            progress=lambda so_far: _tell(progress, so_far, len(pages)),
        )
        return report.added

    return await asyncio.to_thread(load)


def _batches(pages: WorldPages, origin: float) -> Iterator[PageBatch]:
    crawled_at = np.where(pages.held, origin, -np.inf)
    for start in range(0, len(pages), ROWS_A_BATCH):
        rows = slice(start, start + ROWS_A_BATCH)
        yield PageBatch(
            urls=pa.array(pages.urls[rows], pa.string()),
            importance=pages.importance[rows],
            max_age_days=pages.max_age_days[rows],
            crawled_at=crawled_at[rows],
        )


def _tell(progress: Progress, so_far: ImportReport, total: int) -> None:
    progress(so_far.read, total)
