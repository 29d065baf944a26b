"""An event loop without time and without chance: both come from the simulation.

Each simulated process has its own queue of what is ready, in the order in which asyncio would run
it; whose turn it is next, the seed says. When nobody is ready, time jumps to the next timer. What
is given to a thread runs in one go at a moment that the seed picks.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, Final

from services.verify.simulation.process import CURRENT, OUTSIDE, Killed, Process

TURN_SECONDS: Final = 2e-6
"""What a callback takes: no two things are at the very same moment."""

TURNS_AT_ONCE: Final = 32
"""Callbacks between two looks whether the loop is to stop."""

_MIX: Final = 1_000_003
_MASK: Final = (1 << 61) - 1


class Hanging(BaseException):
    """Work in a thread waits for something; it is begun again when that may have come.

    Nothing of it has had an effect yet.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class Stuck(RuntimeError):
    """Nothing is ready, and no timer is set: the simulation would wait for ever."""


Finish = Callable[[Exception | None], None]


class _Thread:
    """Work for threads, one after the other where there is only one thread."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.is_busy = False


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of all simulated processes."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.now = 0.0
        """Seconds since the simulation began."""
        self.fingerprint = 0
        """Of all turns so far: equal runs have equal ones."""
        self.turns = 0
        self.settle: Callable[[Finish], None] = lambda finish: finish(None)
        """Called after work in a thread, with what makes its result known: maybe later, or an
        error instead."""
        self.thread_seconds: Callable[[], float] = lambda: 0.0005
        """Draws how long work waits for a thread."""
        self.died: Callable[[Process], None] = lambda _: None
        """Called for a process that ended within work in a thread."""
        self._random = rng.random
        self._able: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._threads: dict[int, _Thread] = {}
        self._executors: list[Any] = []

    def time(self) -> float:
        """Virtual seconds."""
        return self.now

    # What becomes ready.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's, into the queue of the process that it belongs to."""
        handle = asyncio.Handle(callback, args, self, context)
        self._dispatch(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    def _dispatch(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(CURRENT, OUTSIDE)  # type: ignore[attr-defined]  # noqa: SLF001
        if process.is_dead:
            return
        if not process.queue and not process.is_paused:
            self._able.append(process)
        process.queue.append(handle)

    def pause(self, process: Process) -> None:
        """Let a process stand still, as SIGSTOP does."""
        process.is_paused = True
        if process in self._able:
            self._able.remove(process)

    def resume(self, process: Process) -> None:
        """Let it go on."""
        process.is_paused = False
        if process.queue and not process.is_dead and process not in self._able:
            self._able.append(process)

    def kill(self, process: Process) -> None:
        """End a process without another step."""
        process.is_dead = True
        process.queue.clear()
        if process in self._able:
            self._able.remove(process)

    # Whose turn it is.

    def _run_once(self) -> None:
        able = self._able
        if not able:
            self._advance()
        for _ in range(TURNS_AT_ONCE):
            if self._timers and self._timers[0][0] <= self.now:
                self._take_due()
            if not able:
                return
            index = int(self._random() * len(able)) if len(able) > 1 else 0
            process = able[index]
            handle = process.queue.popleft()
            if not process.queue:
                del able[index]
            if handle.cancelled():
                continue
            self.now += TURN_SECONDS
            self.turns += 1
            self.fingerprint = (self.fingerprint * _MIX + process.number + 1) & _MASK
            handle._run()  # noqa: SLF001 - what asyncio's own loop does
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _advance(self) -> None:
        """Jump to the next timer."""
        while not self._able:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            if not self._timers:
                if self._stopping:  # type: ignore[attr-defined]
                    return
                raise Stuck("nothing is ready and no timer is set")
            self.now = max(self.now, self._timers[0][0])
            self._take_due()

    def _take_due(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self._dispatch(handle)

    def note(self, number: int) -> None:
        """Take something that happened into the fingerprint."""
        self.fingerprint = (self.fingerprint * _MIX + number) & _MASK

    # Threads.

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run a function in one go at a moment that the seed picks; alone, where there is only one
        thread, and then in the order in which functions were given."""
        future: asyncio.Future[Any] = self.create_future()
        process = CURRENT.get()

        def work() -> None:
            if future.cancelled():
                done()
                return
            try:
                result = func(*args)
            except Hanging as hanging:
                self.call_later(hanging.seconds, work)
                return
            except Killed:
                self.died(process)
                return
            except StopIteration:
                raise
            except Exception as error:
                self._answer(future, None, error)
            else:
                self._answer(future, result, None)
            done()

        done = self._begin(executor, lambda: self.call_later(self.thread_seconds(), work))
        return future

    def _begin(self, executor: Any, start: Callable[[], Any]) -> Callable[[], None]:
        """Start work, now or when its thread is free; what to call when it is done."""
        if getattr(executor, "_max_workers", 2) > 1:
            start()
            return lambda: None
        if id(executor) not in self._threads:
            self._executors.append(executor)
        thread = self._threads.setdefault(id(executor), _Thread())

        def done() -> None:
            if thread.waiting:
                thread.waiting.popleft()()
            else:
                thread.is_busy = False

        if thread.is_busy:
            thread.waiting.append(start)
        else:
            thread.is_busy = True
            start()
        return done

    def _answer(self, future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
        self.settle(lambda other: _finish(future, result, other or error))

    # What asyncio's base class wants.

    def _process_events(self, event_list: Any) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody waited for are the workers' own business, and end nothing."""


def _finish(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
