"""An event loop without time and without chance: both come from the simulation.

Each simulated process has its own queue of what is ready, in the order in which asyncio would run
it; whose turn it is next, the seed says. When nobody is ready, time jumps to the next timer. What
is given to a thread runs in one go at a moment that the seed picks.
"""

import asyncio
import contextlib
import heapq
from asyncio import futures
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

from services.verify.simulation.process import CURRENT, OUTSIDE, Killed, Process

TURN_SECONDS: Final = 2e-6
"""What a callback takes: no two things are at the very same moment."""

MOST_CLEANING_UPS: Final = 20
"""Blocks of a task, one in the other, that would wait for something while they clean up."""

_WAKES: Final = futures._set_result_unless_cancelled  # type: ignore[attr-defined]  # noqa: SLF001
"""What the end of `asyncio.sleep` calls: its task then waits for its turn."""

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


class _Turn:
    """What is to be called: as `asyncio.Handle`, but without what debugging needs."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback, self.args = callback, args
        self.context = context = copy_context() if context is None else context
        self.is_cancelled = False
        self.process = context.get(CURRENT, OUTSIDE)
        """Whose turn it is."""

    def cancel(self) -> None:
        """Do not call it."""
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """As `asyncio.Handle`."""
        return self.is_cancelled


def _nothing() -> None:
    return


class _Thread:
    """Work for threads, one after the other where there is only one thread."""

    def __init__(self) -> None:
        self.waiting: deque[_Work] = deque()
        self.is_busy = False

    def go_on(self) -> None:
        """Begin what waits for it."""
        if self.waiting:
            self.waiting.popleft().start()
        else:
            self.is_busy = False


class _Work:
    """A function that a thread runs, and what its result is told to.

    It does not refer to itself, so nothing has to look for what is left of it.
    """

    __slots__ = ("args", "func", "future", "loop", "process", "thread")

    def __init__(
        self,
        loop: "VirtualLoop",
        func: Callable[..., Any],
        args: tuple[Any, ...],
        thread: _Thread | None,
    ) -> None:
        self.loop, self.func, self.args, self.thread = loop, func, args, thread
        self.future: asyncio.Future[Any] = loop.create_future()
        self.process = CURRENT.get()

    def start(self) -> None:
        """Have it run at a moment that the seed picks."""
        self.loop.call_later(self.loop.thread_seconds(), self.run)

    def run(self) -> None:
        """Run it in one go."""
        future = self.future
        if not future.cancelled():
            try:
                result = self.func(*self.args)
            except Hanging as hanging:
                self.loop.call_later(hanging.seconds, self.run)
                return
            except Killed:
                self.loop.died(self.process)
                return
            except StopIteration:
                raise
            except Exception as error:
                self._answer(None, error)
            else:
                self._answer(result, None)
        if self.thread is not None:
            self.thread.go_on()

    def _answer(self, result: Any, error: Exception | None) -> None:
        future = self.future
        self.loop.settle(lambda other: _finish(future, result, other or error))


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
        self._timers: list[tuple[float, int, _Turn]] = []
        self._numbers = 0
        self._threads: dict[int, _Thread] = {}
        self._executors: list[Any] = []

    def time(self) -> float:
        """Virtual seconds."""
        return self.now

    # What becomes ready.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Turn:
        """As asyncio's, into the queue of the process that it belongs to."""
        turn = _Turn(callback, args, context)
        process = turn.process
        if not process.is_dead:
            queue = process.queue
            if not queue and not process.is_paused:
                self._able.append(process)
            queue.append(turn)
        return turn

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> _Turn:
        """As asyncio's."""
        turn = _Turn(callback, args, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, turn))
        return turn

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> _Turn:
        """As asyncio's."""
        turn = _Turn(callback, args, context)
        self._numbers += 1
        heapq.heappush(self._timers, (self.now + delay, self._numbers, turn))
        return turn

    def _queue(self, turn: _Turn, process: Process) -> None:
        if not process.queue and not process.is_paused:
            self._able.append(process)
        process.queue.append(turn)

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
        """Run until the loop is to stop. A simulation is made of turns: they go straight here."""
        able, timers, draw = self._able, self._timers, self._random
        while not self._stopping:  # type: ignore[attr-defined]
            if not able:
                self._advance()
            if timers and timers[0][0] <= self.now:
                self._take_due()
            if not able:
                continue
            index = int(draw() * len(able)) if len(able) > 1 else 0
            process = able[index]
            queue = process.queue
            turn = queue.popleft()
            if not queue:
                del able[index]
            if turn.is_cancelled:
                continue
            # As `_run_now`, whose call would be a good part of what a turn costs.
            self.now += TURN_SECONDS
            self.turns += 1
            self.fingerprint = (self.fingerprint * _MIX + process.number + 1) & _MASK
            try:
                turn.context.run(turn.callback, *turn.args)
            except (Exception, asyncio.CancelledError, Killed, Hanging):  # noqa: S112 - as there
                continue

    def _advance(self) -> None:
        """Jump to the next timer."""
        while not self._able:
            while self._timers and self._timers[0][2].is_cancelled:
                heapq.heappop(self._timers)
            if not self._timers:
                if self._stopping:  # type: ignore[attr-defined]
                    return
                raise Stuck("nothing is ready and no timer is set")
            self.now = max(self.now, self._timers[0][0])
            self._take_due()

    def _take_due(self) -> None:
        """Whatever only wakes somebody, and whatever happens outside of all processes, happens when
        its time has come; all else is a process's turn."""
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            turn = heapq.heappop(timers)[2]
            if turn.is_cancelled:
                continue
            process = turn.process
            if turn.callback is _WAKES:
                # Most timers: it says in whose context it goes on, so it needs none of its own.
                self._count(process.number)
                _WAKES(*turn.args)
            elif process is OUTSIDE:
                self._run_now(turn, process.number)
            elif not process.is_dead:
                self._queue(turn, process)

    def _run_now(self, turn: _Turn, number: int) -> None:
        """Errors that nobody waited for are the workers' own business, and end nothing."""
        self._count(number)
        try:
            turn.context.run(turn.callback, *turn.args)
        except (Exception, asyncio.CancelledError, Killed, Hanging):
            return

    def _count(self, number: int) -> None:
        self.now += TURN_SECONDS
        self.turns += 1
        self.fingerprint = (self.fingerprint * _MIX + number + 1) & _MASK

    def note(self, number: int) -> None:
        """Take something that happened into the fingerprint."""
        self.fingerprint = (self.fingerprint * _MIX + number) & _MASK

    # Threads.

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run a function in one go at a moment that the seed picks; alone, where there is only one
        thread, and then in the order in which functions were given."""
        work = _Work(self, func, args, self._thread_of(executor))
        if work.thread is None:
            work.start()
        elif work.thread.is_busy:
            work.thread.waiting.append(work)
        else:
            work.thread.is_busy = True
            work.start()
        return work.future

    def _thread_of(self, executor: Any) -> "_Thread | None":
        """The thread of an executor that has only one; None: there are as many as one likes."""
        if getattr(executor, "_max_workers", 2) > 1:
            return None
        thread = self._threads.get(id(executor))
        if thread is None:
            self._executors.append(executor)
            thread = self._threads[id(executor)] = _Thread()
        return thread

    # Its end.

    def end(self) -> None:
        """End what is left of all tasks where they stand, so that nothing goes on, and close.

        What a task begins while it is ended is ended too; it must find the loop that it belongs to.
        """
        asyncio._set_running_loop(self)  # noqa: SLF001 - for those who implement loops
        try:
            ended: set[asyncio.Task[Any]] = set()
            while left := asyncio.all_tasks(self) - ended:
                for task in left:
                    _end(task)
                ended |= left
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001
        for process in self._able:
            process.queue.clear()
        self.close()

    # What asyncio's base class wants.

    get_debug = staticmethod(bool)
    """Never; each future asks, and this answers without a frame of Python."""

    def _process_events(self, event_list: Any) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody waited for end nothing."""


def _end(task: "asyncio.Task[Any]") -> None:
    """End a task where it stands. Of the blocks that clean up, nothing is waited for."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    coroutine: Any = task.get_coro()
    for _ in range(MOST_CLEANING_UPS):
        with contextlib.suppress(BaseException):
            coroutine.close()
            return


def _finish(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
