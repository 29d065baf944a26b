"""Standing still: a worker that cannot read on stays, so that people see why."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import structlog

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 0.1

REPORT_SECONDS: Final = 60.0
"""Why reading has stopped is said once in so long."""


async def standing_still(reason: str, stopping: asyncio.Event) -> AsyncIterator[None]:
    """Turns in which nothing is read, until `stopping` is set.

    Args:
        reason: why, for people; said now and then.
        stopping: ends it.
    """
    report_at = 0.0
    while not stopping.is_set():
        if time.monotonic() >= report_at:
            report_at = time.monotonic() + REPORT_SECONDS
            log.critical("reading has stopped", reason=reason)
        yield
        await asyncio.sleep(LOOK_SECONDS)
