"""URLs as people write them in commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.terminal.visible import visible

_MOST_SHOWN: Final = 100
"""Characters of a URL that is refused."""


def page_of(written: str) -> PageIdentity:
    """The page of a URL.

    Raises:
        BadUrl: as of `naming`.
    """
    with naming(written):
        return identify(written)


@contextmanager
def naming(written: str) -> Iterator[None]:
    """What is done with a URL, of which there may be several.

    Raises:
        BadUrl: Freshet does not take it; the text names it.
    """
    try:
        yield
    except BadUrl as error:
        short = written if len(written) <= _MOST_SHOWN else f"{written[: _MOST_SHOWN - 1]}…"
        raise BadUrl(f"{visible(short)}: {error}") from error
