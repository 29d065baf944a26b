"""Asking before something is done that cannot be taken back."""

import select
import sys
from io import BufferedReader

import click

from services.cli.errors import SystemFailed


def confirm(question: str) -> None:
    """Ask on standard error: an answer on standard output may be read by a program.

    Raises:
        SystemFailed: there is nobody to ask.
        click.Abort: the answer is no.
    """
    if is_nobody_there():
        raise SystemFailed("there is nobody to ask: give --yes")
    click.confirm(question, abort=True, err=True)


def is_nobody_there() -> bool:
    """Whether standard input is over before anything was asked, as that of a job that runs by the
    clock; an answer may also come through a pipe."""
    if sys.stdin is None or sys.stdin.closed:
        return True
    if sys.stdin.isatty():
        return False
    try:
        can_be_read, _, _ = select.select([sys.stdin], [], [], 0.0)
        buffered = sys.stdin.buffer
        return bool(can_be_read) and isinstance(buffered, BufferedReader) and not buffered.peek(1)
    except (OSError, ValueError):
        return False  # nothing that can be looked at: whoever reads it will see
