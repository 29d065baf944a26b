"""What sitemaps and feeds have in common: pages, and when they say that each has changed."""

from collections.abc import Callable
from typing import Final, NamedTuple

MOST_ENTRIES: Final = 50_000
"""Of one document, as the protocol of sitemaps has it; what comes later is not looked at."""

MOST_TEXT: Final = 8 * 1024
"""Characters of an address or a date; a longer one is none."""


class BadDocument(Exception):
    """It cannot be read as a sitemap or a feed; the text says why."""


class Entry(NamedTuple):
    """A page, as a document names it."""

    url: str
    stated: str
    """When it changed, as written; empty: nothing is said."""


Give = Callable[[Entry], None]
"""Takes entries as they are found."""


class Summary(NamedTuple):
    """A document besides its entries."""

    kind: str
    """`index`, `sitemap` or `feed`."""
    hint_seconds: float | None
    """How often it says that it changes; None: nothing is said."""
    bad_entries: int = 0
    """That were passed over: they can name no page."""
