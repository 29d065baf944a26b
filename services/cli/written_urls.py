"""URLs as people write them in commands."""

from typing import Final

from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.terminal.visible import visible

_MOST_SHOWN: Final = 100
"""Characters of a URL that is refused."""


def page_of(written: str) -> PageIdentity:
    """The page of a URL.

    Raises:
        BadUrl: Freshet does not take it; the text names it, as there may be several.
    """
    try:
        return identify(written)
    except BadUrl as error:
        raise named(written, error) from error


def named(written: str, error: BadUrl) -> BadUrl:
    """An error that says which URL it is about."""
    short = written if len(written) <= _MOST_SHOWN else f"{written[: _MOST_SHOWN - 1]}…"
    return BadUrl(f"{visible(short)}: {error}")
