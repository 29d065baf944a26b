"""What a run needs before its workers start: a plan, tables and topics, a budget."""

import asyncio
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from deploy.local.postgres import has_listener, is_embedded
from migrations.found import look
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


def require_one_database(settings: Settings) -> None:
    """Refuse settings that name several databases, before any server is started.

    Raises:
        RunRefused: they do.
    """
    if settings.databases is not None:
        raise RunRefused(
            "`freshet run` brings up a whole system with one database: unset FRESHET_DATABASES, "
            "or start each worker by `freshet worker`"
        )


def require_no_former_run(settings: Settings) -> None:
    """Refuse the database of a run that is over, before any server is started.

    Raises:
        RunRefused: a shell that has read the run's environment names it.
    """
    words = conninfo_to_dict(settings.database_url.get_secret_value())
    folder = Path(str(words.get("host") or ""))
    if is_embedded(folder) and not has_listener(folder):
        raise RunRefused(
            "this shell has read the environment of a run that is over: DATABASE_URL leads to "
            f"{folder}, where no server is. Open another shell, or unset DATABASE_URL, "
            "KAFKA_BOOTSTRAP_SERVERS and each FRESHET_… that the run gave it"
        )


async def prepare_system(settings: Settings, *, own_database: bool, must_be_empty: bool) -> int:
    """Make tables and topics.

    Args:
        settings: of the run.
        own_database: the run made it; else it is somebody's, and is looked at before it is altered.
        must_be_empty: what is simulated would mix with what is there.

    Returns:
        how many shards there are: settings may say the number of before a growth.

    Raises:
        RunRefused: the database holds pages already, or is of another version; or there are several
            databases.
        StoreMismatch: the database has another number of shards.
    """
    require_one_database(settings)
    url = settings.database_url.get_secret_value()
    if not own_database:
        await asyncio.to_thread(_require_fit, url, must_be_empty=must_be_empty)
    shards = await asyncio.to_thread(migrate, url, settings.partitions)
    await ensure_topics(settings)
    return shards


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


def _require_fit(url: str, *, must_be_empty: bool) -> None:
    """Refuse a database that a run would spoil, or migrate for others; nothing is altered.

    Raises:
        RunRefused: it has tables of another version; or pages or hosts, and must be empty.
    """
    found = look(url)
    if found is None:
        return
    if not found.is_of_this_version:
        raise RunRefused(
            "the database that DATABASE_URL names has tables of another version (its schema is "
            f"{found.revision}), and a run migrates none but its own: unset DATABASE_URL, name an "
            "empty database, or call `freshet migrate` if that is meant"
        )
    if must_be_empty and found.holds_anything:
        raise RunRefused(
            "the database that DATABASE_URL names holds pages or hosts already, and a simulated "
            "web would mix with them: unset DATABASE_URL, name an empty database, or use --world "
            "none"
        )


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.absolute())
