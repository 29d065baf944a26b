"""What a run needs before its workers start: a plan, tables and topics, a budget."""

import asyncio
from pathlib import Path

import psycopg

from migrations.upgrade import migrate
from services.run.errors import RunRefused
from services.run.options import RunOptions
from services.world.plan import WorldPlan
from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings


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
        fleet=options.fleet,
    )


async def prepare_system(settings: Settings, *, must_be_empty: bool) -> None:
    """Make tables and topics.

    Raises:
        RunRefused: the database holds pages already, and a simulation would spoil them; or there
            are several databases.
    """
    if settings.databases is not None:
        raise RunRefused(
            "`freshet run` brings up a whole system with one database: unset FRESHET_DATABASES, "
            "or start each worker by `freshet worker`"
        )
    url = settings.database_url.get_secret_value()
    await asyncio.to_thread(migrate, url, settings.partitions)
    if must_be_empty and await asyncio.to_thread(_has_pages, url):
        raise RunRefused(
            "the database that DATABASE_URL names holds pages already, and a simulated web would "
            "mix with them: name an empty one, or use --world none"
        )
    await ensure_topics(settings)


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


def _has_pages(url: str) -> bool:
    with psycopg.connect(url, connect_timeout=10) as connection:
        row = connection.execute("SELECT EXISTS (SELECT 1 FROM pages)").fetchone()
    return bool(row and row[0])


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.absolute())
