"""Waiting until estimators have applied what is on the topics: for commands that go by what the
database knows."""

import asyncio
import math
import time
from collections.abc import Container
from dataclasses import replace
from typing import Final

from services.cli.errors import UserError
from services.cli.positions import Place, places
from services.estimator.worker import TOPICS as ESTIMATED
from shared.runtime.settings import Settings
from shared.store.positions import ESTIMATOR
from shared.store.splitting import SHOWN_SECONDS, Told

APPLIED_SECONDS: Final = 5.0
"""An estimator that works has applied by then what had come."""

LOOK_SECONDS: Final = 0.5

SELDOM_SECONDS: Final = 3.0
"""Between two looks once it takes longer: they are of all partitions."""

_ESTIMATED: Final = frozenset(topic.name for topic in ESTIMATED)


async def require_applied(
    settings: Settings,
    *,
    told: Told,
    seconds: float,
    because: str,
    topics: Container[str] = _ESTIMATED,
    partitions: Container[int] | None = None,
) -> None:
    """Make sure that estimators have applied all that there is now, or do so soon.

    Args:
        settings: of the process.
        told: how many records of how many are applied, and what is waited for.
        seconds: it is waited for so long, and for some seconds in any case.
        because: what they might do otherwise, to be read after "records are not applied yet".
        topics: those that count, without prefix.
        partitions: those that count; None: all.

    Raises:
        UserError: they have not.
        KafkaError, psycopg.Error, StoreMismatch: as by `positions.places`.
    """

    async def look() -> list[Place]:
        found, _ = await places(settings)
        return [
            one
            for one in found
            if one.consumer == ESTIMATOR
            and one.topic in topics
            and (partitions is None or one.partition in partitions)
        ]

    now, began = await look(), time.monotonic()
    ends, total, shown_at = {_place_of(one): one.log_end for one in now}, 0, -math.inf
    while left := sum(one.lag for one in now):
        names = ", ".join(sorted({one.topic for one in now if one.lag}))
        total, waited = max(total, left), time.monotonic() - began
        if waited >= max(seconds, APPLIED_SECONDS):
            raise UserError(
                f"{left} records are not applied yet ({names}), and {because}: start estimators "
                "first, unless they run, and call this again once `freshet positions list` shows "
                "that they have read them"
            )
        if waited - shown_at >= SHOWN_SECONDS:
            shown_at = waited
            told(total - left, total, f"{left} records are to be applied before ({names})")
        await asyncio.sleep(LOOK_SECONDS if waited < APPLIED_SECONDS else SELDOM_SECONDS)
        now = [replace(one, log_end=ends.get(_place_of(one), 0)) for one in await look()]


def _place_of(one: Place) -> tuple[str, int]:
    return one.topic, one.partition
