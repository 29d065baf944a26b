"""How a process waits for a server that is away: again and again, ever more slowly."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import tenacity

LONGEST_WAIT_SECONDS: Final = 5.0
"""A server that is back is noticed so soon."""

_FIRST_WAIT_SECONDS: Final = 0.1


class Attempts:
    """Attempts that follow each other until one passes, each a context for what may fail.

    Most pass at once: the library, whose objects cost more than many a batch, is asked only when
    the first one has failed.
    """

    __slots__ = ("_error", "_number", "_rest", "_retrying")

    def __init__(self, retrying: Callable[[], tenacity.AsyncRetrying]) -> None:
        self._retrying = retrying
        self._number = 0
        self._error: BaseException | None = None
        """Of the first attempt, or none."""
        self._rest: AsyncIterator[tenacity.AttemptManager] | None = None

    def __aiter__(self) -> "Attempts":
        return self

    async def __anext__(self) -> "Attempts | tenacity.AttemptManager":
        self._number += 1
        if self._number == 1:
            return self
        if self._error is None:
            raise StopAsyncIteration
        if self._rest is None:
            self._rest = aiter(self._retrying())
            with await anext(self._rest):
                raise self._error
        return await anext(self._rest)

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        self._error = error
        return isinstance(error, Exception)


def until_it_passes(
    stopping: asyncio.Event | None,
    may_pass: Callable[[BaseException], bool],
    note: Callable[[BaseException], None] | None = None,
    *,
    patience_seconds: float = math.inf,
) -> Attempts:
    """Attempts that follow each other ever more slowly, up to `LONGEST_WAIT_SECONDS` apart.

    The waits are random, so that those who wait for one server do not all come back at once.

    Args:
        stopping: ends them; the last error is then raised. None: nothing but success does.
        may_pass: whether waiting can help against an error; any other is raised at once.
        note: told of the error before each wait.
        patience_seconds: after so long the last error is raised.
    """

    def tell(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if note is not None and error is not None:
            note(error)

    def retrying() -> tenacity.AsyncRetrying:
        ends: list[Any] = []
        if stopping is not None:
            ends.append(tenacity.stop_when_event_set(stopping))  # type: ignore[arg-type]
        if patience_seconds < math.inf:
            ends.append(tenacity.stop_after_delay(patience_seconds))
        return tenacity.AsyncRetrying(
            stop=tenacity.stop_any(*ends),
            wait=tenacity.wait_random_exponential(_FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS),
            retry=tenacity.retry_if_exception(may_pass),
            before_sleep=tell,
            reraise=True,
        )

    return Attempts(retrying)
