"""Putting a run's pages into its database, and its budget on the broker."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg

from services.cli.errors import UserError
from services.cli.running.options import CLOCK_ORIGIN, RunOptions
from services.world.pages import WorldPages
from services.world.plan import WorldPlan
from services.world.worker import load_world
from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.store.imports import ImportReport, PageBatch, import_pages
from shared.store.migration import migrate

BATCH_PAGES = 50_000

Progress = Callable[[int, int], None]
"""Told how many pages are in, of how many."""


def make_plan(options: RunOptions, status_file: Path, result_file: Path) -> WorldPlan:
    """The plan of the world that the options ask for."""
    return WorldPlan(
        kind="trace" if options.world == "trace" else "generated",
        budget=list(options.budget),
        status_file=str(status_file),
        result_file=str(result_file),
        seed=options.seed,
        pages=options.pages,
        pages_file=_absolute(options.pages_file),
        events_file=_absolute(options.events_file),
        days=options.days,
    )


async def prepare_system(settings: Settings, *, must_be_empty: bool) -> None:
    """Make tables and topics.

    Raises:
        UserError: the database holds pages already, and a simulation would spoil them.
    """
    url = settings.database_url.get_secret_value()
    await asyncio.to_thread(migrate, url, settings.partitions)
    if must_be_empty and await asyncio.to_thread(_has_pages, url):
        raise UserError(
            "the database that DATABASE_URL names holds pages already, and a simulated web would "
            "mix with them: name an empty one, or use --world none"
        )
    await ensure_topics(settings)


async def load_pages(settings: Settings, plan: WorldPlan, progress: Progress) -> int:
    """Import the pages of a world; returns how many.

    Raises:
        TraceError: the trace cannot be read.
    """

    def load() -> int:
        pages, _ = load_world(plan)
        report = import_pages(
            settings.database_url.get_secret_value(),
            settings.partitions,
            _batches(pages),
            now=CLOCK_ORIGIN,
            progress=lambda so_far: _tell(progress, so_far, len(pages)),
        )
        return report.added

    return await asyncio.to_thread(load)


async def publish_budget(settings: Settings, crawls_per_second: float) -> None:
    """Say what the budget is from the beginning."""
    publisher = Publisher(settings)
    await publisher.start()
    try:
        await publisher.send_global(
            BANDWIDTH, Bandwidth(crawls_per_second, set_at=settings.clock().now())
        )
    finally:
        await publisher.stop()


def _batches(pages: WorldPages) -> Iterator[PageBatch]:
    crawled_at = np.where(pages.held, CLOCK_ORIGIN, -np.inf)
    for start in range(0, len(pages), BATCH_PAGES):
        rows = slice(start, start + BATCH_PAGES)
        identities = pages.identities(rows)
        yield PageBatch(
            urls=[page.url for page in identities],
            importance=pages.importance[rows],
            max_age_days=pages.max_age_days[rows],
            crawled_at=crawled_at[rows],
            identities=identities,
        )


def _tell(progress: Progress, so_far: ImportReport, total: int) -> None:
    progress(so_far.read, total)


def _has_pages(url: str) -> bool:
    with psycopg.connect(url, connect_timeout=10) as connection:
        row = connection.execute("SELECT EXISTS (SELECT 1 FROM pages)").fetchone()
    return bool(row and row[0])


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.absolute())
