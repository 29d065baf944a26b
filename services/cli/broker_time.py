"""The broker's time for commands: what they write counts by it, as all that workers write does.

It is measured once, at the start of a command. From then on the time of this process is the
broker's, whatever the clock of its machine says.
"""

import asyncio

import click
from aiokafka.errors import KafkaConnectionError

from services.cli.databases import home_url
from services.cli.errors import UserError
from services.cli.kafka import require_broker
from shared.runtime.access import AccessRefused, check_access
from shared.runtime.clock_offset import FIRST_ASKED, ClockOffset, OffsetEstimate
from shared.runtime.kafka import client_options
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL, steady
from shared.store.connection import connect
from shared.store.server_time import read_time


async def go_by_broker(settings: Settings) -> None:
    """Let the time of this process be the broker's; for what counts by its time.

    Raises:
        KafkaConnectionError: no broker answers.
        AccessRefused: it does not let us in.
        UserError: it does not tell its time.
    """
    trouble = await _measured(settings)
    if trouble is not None:
        raise UserError(
            f"{trouble}. What this command writes counts by the broker's time: let `freshet topics "
            "ensure --fix` mend the topic clock, and let this Kafka user write to it"
        )


async def go_by_broker_if_told(settings: Settings) -> None:
    """The same for what must hold at once: where the broker does not tell its time, say so.

    Raises:
        KafkaConnectionError: no broker answers.
        AccessRefused: it does not let us in.
    """
    trouble = await _measured(settings)
    if trouble is not None:
        click.echo(f"going by this machine's clock: {trouble}", err=True)


async def go_by_broker_or_database(settings: Settings) -> None:
    """The same for what needs no broker: where none tells its time, let it be the home's.

    Raises:
        psycopg.OperationalError: nor is the database there.
    """
    try:
        trouble = await _measured(settings)
    except (KafkaConnectionError, AccessRefused) as error:
        trouble = str(error)
    if trouble is not None:
        await asyncio.to_thread(_go_by_database, settings)


async def _measured(settings: Settings) -> str | None:
    """Why the broker's time is not known; None: it is, and this process goes by it."""
    require_broker(settings)
    clock = ClockOffset(settings, lambda _seconds: None)
    await clock.start()
    await clock.stop()
    if clock.estimate.is_known:
        return None
    if clock.trouble is None:
        await check_access(settings, client_options(settings))
    return clock.trouble or "the broker does not tell its time: it did not answer in time"


def _go_by_database(settings: Settings) -> None:
    estimate = OffsetEstimate()
    with connect(home_url(settings), "cli", autocommit=True) as connection:
        for _ in range(FIRST_ASKED):
            asked_at = steady()
            estimate.note(asked_at, read_time(connection), steady())
    WALL.steer(estimate.least, estimate.most)
