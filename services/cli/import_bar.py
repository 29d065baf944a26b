"""The progress bar of an import."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ImportBar:
    """A bar on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("pages"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("pages", total=None, start=False)
        self._running = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def advance(self, done: int, total: int | None) -> None:
        """So many pages are in, of so many (None: unknown)."""
        if not self._running:
            self._bar.start()
            self._bar.start_task(self._task)
            self._running = True
        self._bar.update(self._task, completed=done, total=total)
        if total is not None and done >= total:
            self._end()

    def _end(self) -> None:
        if self._running:
            self._bar.stop()
            self._running = False
