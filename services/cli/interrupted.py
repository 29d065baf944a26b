"""Ctrl-C in the middle of something: what of it is done already."""

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
