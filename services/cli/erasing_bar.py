"""The progress bar of an erasure, and what is said where it is stopped."""

from collections.abc import Iterator
from contextlib import contextmanager

from services.cli.erasing import Progress
from services.cli.import_bar import ImportBar
from services.cli.interrupted import telling_what_is_done


@contextmanager
def erasing_with_a_bar() -> Iterator[Progress]:
    """A bar for pages that are erased.

    Raises:
        SystemFailed: somebody stops it; says how many are erased.
    """
    erased, of_all = 0, 0

    def told(done: int, total: int | None) -> None:
        nonlocal erased, of_all
        erased, of_all = done, total or of_all
        bar.advance(done, total)

    def said() -> str:
        return f"{erased:,} of {of_all:,} pages are erased; the same command goes on with the rest"

    with telling_what_is_done(said), ImportBar() as bar:
        yield told
