"""What a page is, in a row of it: apart from the tables, which workers need not load."""

from typing import Final

ACTIVE: Final = 0
"""Status of a page that is crawled."""

REMOVED: Final = 1
"""Status of a page that an operator took out; only an operator brings it back."""

GONE: Final = 2
"""Status of a page that its host does not have any more (404 three times, or 410): it is looked at
ever more rarely; a signal, an operator or a crawl that gets it bring it back."""

REDIRECTED: Final = 3
"""Status of a page whose address only leads to another one; else as gone ones."""

DUPLICATE: Final = 4
"""Status of a page that says that another URL is the one to keep; else as gone ones."""

DISALLOWED: Final = 5
"""Status of a page that robots.txt forbids; else as gone ones."""

AWAY: Final = (GONE, REDIRECTED, DUPLICATE, DISALLOWED)
"""Pages with these are *away*: out of the order in which all others are crawled, until they come
back."""

FIRST_AWAY: Final = GONE
"""These are all statuses from here on."""

STATUS_NAMES: Final = {
    ACTIVE: "active",
    REMOVED: "removed",
    GONE: "gone",
    REDIRECTED: "redirected",
    DUPLICATE: "duplicate",
    DISALLOWED: "disallowed",
}

NEVER: Final = float("-inf")
"""The time of something that has not happened."""
