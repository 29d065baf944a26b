"""Says which kernels a worker had to compile although it was ready."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

EVENT: Final = "kernels that the warm-up left out: work stood still while they were compiled"

_LOOK_SECONDS: Final = 2.0


async def watch_kernels(late: Callable[[], list[str]], stopping: asyncio.Event) -> None:
    """Look again and again until the stop; each kernel is named once.

    Args:
        late: the names of those that came since the worker was ready.
        stopping: ends it.
    """
    said = set[str]()
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _LOOK_SECONDS)
        new = [name for name in late() if name not in said]
        if new:
            said.update(new)
            log.warning(EVENT, kernels=new)
