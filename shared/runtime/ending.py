"""How a process that was told to stop gets to its end undisturbed."""

import asyncio
import signal
from typing import Final

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
