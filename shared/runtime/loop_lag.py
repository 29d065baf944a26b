"""How late an event loop wakes who sleeps: whatever blocks it keeps everybody in it waiting."""

import asyncio
import time

import structlog

from shared.runtime import metrics

log = structlog.get_logger(__name__)

LAG_PROBE_SECONDS = 0.1
LAG_WINDOW_SECONDS = 30.0
"""The longest lag is that of the last one to two windows."""


async def watch_loop_lag(stopping: asyncio.Event, warning_seconds: float) -> None:
    """Measure how much later than asked the loop wakes a sleeper, and warn of long blocks."""
    longest = before = 0.0
    window_ends = time.perf_counter() + LAG_WINDOW_SECONDS
    while not stopping.is_set():
        asked = time.perf_counter() + LAG_PROBE_SECONDS
        await asyncio.sleep(LAG_PROBE_SECONDS)
        now = time.perf_counter()
        lag = max(now - asked, 0.0)
        metrics.LOOP_LAG_SECONDS.observe(lag)
        if lag > warning_seconds:
            log.warning(
                "the event loop was blocked", seconds=round(lag, 3), warning_seconds=warning_seconds
            )
        if now > window_ends:
            before, longest, window_ends = longest, 0.0, now + LAG_WINDOW_SECONDS
        longest = max(longest, lag)
        metrics.LOOP_LAG_MAX_SECONDS.set(max(longest, before))
