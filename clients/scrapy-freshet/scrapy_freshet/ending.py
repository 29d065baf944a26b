"""Ending what may not want to end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


async def for_at_most(seconds: float, *work: Coroutine[Any, Any, None]) -> None:
    """Let work go on for so long, and leave it where it stands then, whatever it makes of that.

    aiokafka asks a broker that is away again and again, and may not hear that it is cancelled.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    if not tasks:
        return
    _, left = await asyncio.wait(tasks, timeout=seconds)
    for task in left:
        task.cancel()
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            log.warning("while the crawler stopped: %r", error)
