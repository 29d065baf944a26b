"""How a process that was told to stop gets to its end undisturbed, and one that fails says why."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

log = structlog.get_logger(__name__)

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def ignore_further_stops(loop: asyncio.AbstractEventLoop) -> None:
    """No signal that asks for a stop is heard from now on; for a process that ends anyway.

    A second SIGTERM is common: a supervisor sends one to whom it believes still at work. Coming
    while the loop closes, it would be written to a pipe that is gone, and leave a traceback in the
    log of a process that did everything right.

    Args:
        loop: runs in the main thread, from which this must be called.
    """
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def naming_faults() -> Iterator[None]:
    """Let the last log line of a process that fails name the fault.

    It is logged where it comes up, too, but the framework goes on to say of each part how it is
    closed, and who reads the last line would read of that.
    """
    try:
        yield
    except SystemExit as ended:
        fault = ended.__context__
        if ended.code and fault is not None:
            log.critical("the worker failed", fault=f"{type(fault).__name__}: {fault}".rstrip(": "))
        raise
