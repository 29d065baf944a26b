"""What is cut off in the middle: what of it is done already, and how to go on."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from services.cli.errors import SystemFailed


@contextmanager
def telling_what_is_done(said: Callable[[], str | None]) -> Iterator[None]:
    """Say where somebody stops it what holds by then; "Aborted!" would leave them to guess.

    Args:
        said: what is done, and how to go on; None: nothing is.

    Raises:
        SystemFailed: it was stopped, and something is done.
    """
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        done = said()
        if done is None:
            raise
        raise SystemFailed(f"stopped: {done}") from None


@contextmanager
def telling_how_far(said: Callable[[], str | None]) -> Iterator[None]:
    """`telling_what_is_done`, and the same where it fails.

    Raises:
        SystemFailed: as there.
    """
    stopped = False

    def when_stopped() -> str | None:
        nonlocal stopped
        stopped = True
        return said()

    try:
        with telling_what_is_done(when_stopped):
            yield
    except click.ClickException as error:
        if not stopped and (done := said()):
            error.message += f". {done[0].upper()}{done[1:]}"
        raise
    except Exception:
        if done := said():
            # What failed is said after this, as for any command.
            click.echo(done, err=True)
        raise


@contextmanager
def ending_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM, by which supervisors and Kubernetes stop what runs, end a command as Ctrl-C
    does: it says what is done by then, closes what is open, and exits 1."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not its business
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    if callable(signal.getsignal(signal.SIGINT)):
        # A loop that runs has a handler of its own, which lets its tasks end.
        signal.raise_signal(signal.SIGINT)
    else:
        # What a shell starts in the background ignores Ctrl-C.
        raise KeyboardInterrupt
