"""What a page is, in a row of it: apart from the tables, which workers need not load."""

from typing import Final

ACTIVE: Final = 0
"""Status of a page that is crawled."""

REMOVED: Final = 1
"""Status of a page that an operator took out; only an operator brings it back."""

GONE: Final = 2
"""Status of a page that its host does not have any more (404 three times, or 410): it is looked at
ever more rarely; a signal, an operator or a crawl that gets it bring it back."""

STATUS_NAMES: Final = {ACTIVE: "active", REMOVED: "removed", GONE: "gone"}

NEVER: Final = float("-inf")
"""The time of something that has not happened."""
