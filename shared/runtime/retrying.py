"""How workers wait for a server that is away: again and again, until they are told to stop."""

import asyncio
from collections.abc import Callable

import tenacity


def until_it_passes(
    stopping: asyncio.Event,
    may_pass: Callable[[BaseException], bool],
    note: Callable[[tenacity.RetryCallState], None],
) -> tenacity.AsyncRetrying:
    """Attempts that follow each other ever more slowly, up to five seconds apart.

    Args:
        stopping: ends them; the last error is then raised.
        may_pass: whether waiting can help against an error; any other is raised at once.
        note: called before each wait.
    """
    return tenacity.AsyncRetrying(
        stop=tenacity.stop_when_event_set(stopping),  # type: ignore[arg-type]
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=5),
        retry=tenacity.retry_if_exception(may_pass),
        before_sleep=note,
        reraise=True,
    )
