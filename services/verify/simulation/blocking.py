"""A program that waits by itself, as commands do: it runs while the loop stands still.

A worker leaves all waiting to its loop. A command sleeps, and waits for locks and commits, in the
middle of its work. So it has a thread, of which one step runs at a time: from one wait to the next.
"""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import Killed, Process

_SLEEP: Final = time.sleep


class Blocking:
    """A process that runs a function which waits by itself."""

    def __init__(
        self,
        loop: VirtualLoop,
        process: Process,
        call: Callable[[], None],
        ended: Callable[[Exception | None], None],
    ) -> None:
        """Make it, not begun yet.

        Args:
            loop: of the simulation.
            process: that it is.
            call: what it does.
            ended: told when it has come to its end, and its error; not where it was killed.
        """
        self._loop, self._process = loop, process
        self._call, self._ended = call, ended
        self._step, self._stop = threading.Semaphore(0), threading.Semaphore(0)
        self._error: Exception | None = None
        self._then: Callable[[], object] = self._do_nothing
        self._is_over = False
        self._thread = threading.Thread(
            target=lambda: process.context().run(self._run), name=process.name, daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        self._later(0.0)

    def kill(self) -> None:
        """End it where it waits."""
        self._loop.kill(self._process)
        if not self._is_over:
            self._take_step()
            self._thread.join()

    def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds."""
        self._wait(lambda: self._later(seconds))

    def settle(self) -> None:
        """Wait for the commit of the transaction that was ended last.

        Raises:
            psycopg.OperationalError: it did not come through, or its answer was lost.
        """
        self._wait(lambda: self._loop.settle(self._go_on))

    # In the loop's thread.

    def _later(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._go_on, context=self._process.context())

    def _go_on(self, error: Exception | None = None) -> None:
        self._error = error
        self._take_step()
        self._then()

    def _take_step(self) -> None:
        self._then = self._do_nothing
        self._step.release()
        self._stop.acquire()

    def _do_nothing(self) -> None:
        return

    # In its own.

    def _run(self) -> None:
        _HERE.set(self)
        error: Exception | None = None
        try:
            self._step.acquire()
            self._go_on_living()
            self._call()
        except Killed:
            return
        except Exception as raised:
            error = raised
        finally:
            self._is_over = True
            if not self._process.is_dead:
                self._then = lambda: self._ended(error)
            self._stop.release()

    def _wait(self, then: Callable[[], object]) -> None:
        self._go_on_living()
        self._then = then
        self._stop.release()
        self._step.acquire()
        self._go_on_living()
        if self._error is not None:
            raise self._error

    def _go_on_living(self) -> None:
        if self._process.is_dead:
            raise Killed


_HERE: ContextVar[Blocking | None] = ContextVar("blocking", default=None)


def blocking_here() -> Blocking | None:
    """The program whose step this is; None: it is a worker's turn, or the simulation's."""
    return _HERE.get()


def sleep(seconds: float) -> None:
    """In the place of `time.sleep`."""
    here = blocking_here()
    if here is None:
        _SLEEP(seconds)
    else:
        here.sleep(seconds)
