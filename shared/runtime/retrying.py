"""How a process waits for a server that is away: again and again, ever more slowly."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

import tenacity

LONGEST_WAIT_SECONDS: Final = 5.0
"""A server that is back is noticed so soon."""

_FIRST_WAIT_SECONDS: Final = 0.1


def until_it_passes(
    stopping: asyncio.Event | None,
    may_pass: Callable[[BaseException], bool],
    note: Callable[[tenacity.RetryCallState], None] | None = None,
    *,
    patience_seconds: float = math.inf,
) -> tenacity.AsyncRetrying:
    """Attempts that follow each other ever more slowly, up to `LONGEST_WAIT_SECONDS` apart.

    The waits are random, so that those who wait for one server do not all come back at once.

    Args:
        stopping: ends them; the last error is then raised. None: nothing but success does.
        may_pass: whether waiting can help against an error; any other is raised at once.
        note: called before each wait.
        patience_seconds: after so long the last error is raised.
    """
    ends: list[Any] = []
    if stopping is not None:
        ends.append(tenacity.stop_when_event_set(stopping))  # type: ignore[arg-type]
    if patience_seconds < math.inf:
        ends.append(tenacity.stop_after_delay(patience_seconds))
    return tenacity.AsyncRetrying(
        stop=tenacity.stop_any(*ends),
        wait=tenacity.wait_random_exponential(_FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS),
        retry=tenacity.retry_if_exception(may_pass),
        before_sleep=note,
        reraise=True,
    )
