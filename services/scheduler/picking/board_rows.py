"""Rows of the board: an entry of the list, and the state of the whole."""

from typing import Any, Final

import numpy as np

from shared.policy.compiled import compiled

UPPER_TIERS: Final = 3
"""How many tiers there are above those that go by value."""

SHARERS: Final = 1 + UPPER_TIERS + 1
"""Who may have parts of the slots: by value, each upper tier, and the most urgent of all."""

LEFT: Final = -1

ENTRY: Final = np.dtype(
    [
        ("row", np.int32),  # of the page; `LEFT`: it is somewhere else now
        ("host", np.int32),  # of the page
        ("listing", np.uint8),  # the entry is the page's own while its `listing` is this
        ("is_exact", np.uint8),  # it was looked at for these slots
        ("priority", np.float64),  # when it was looked at last
        ("bound", np.float64),  # of its priority ...
        ("until", np.float64),  # ... until then
    ],
    align=True,
)

STATE: Final = np.dtype(
    [
        ("listed", np.int64),  # entries
        ("urgent", np.int64),  # entries of the heap
        ("urgent_left", np.int64),  # ... when those that count no more were dropped last
        ("parked", np.int64),  # entries of the heap
        ("free_item", np.int64),  # of pens: first of the free ones; 0: none
        ("next_item", np.int64),  # of pens: first one never used
        ("guard", np.float64),  # of pages that are placed now
        ("certain_from", np.float64),  # guard of all pages that are placed
        ("timeout", np.float64),  # of requests; clock seconds
        ("first_retry", np.float64),  # clock seconds after the first failure of a page
        ("reach", np.float64),  # clock seconds of crawling that pens keep pages for
        ("drains", np.int64),  # urgent pages that may still go to pens before the slots are filled
        ("used", np.int64),  # rows of pages
        ("few_pages", np.int64),  # no more are looked at at once, as of a host, or in one tick
        ("sweeps_first", np.int64),  # host whose pages are placed anew; -1: none (`host_sweeps`)
        ("sweeps_last", np.int64),  # ... and that whose pages are last
        ("host_sweeps", np.int64),  # how many there were
        ("unsure_below", np.float64),  # pages that were not looked at may be worth this: of hosts
        # whose pens lack their best, and of a tick in which very many came up
        ("asked_from", np.int64),  # hosts of listed pages from here on were asked for their limits
        ("dozing", np.int64),  # entries at the beginning of the list that nobody looks at ...
        ("wakes_at", np.float64),  # ... until then, clock seconds ...
        ("phase", np.float64),  # ... which is so much of the time between, later than in others
        ("dozes_below", np.float64),  # ... as they are worth less than this
        ("looked_span", np.float64),  # how far above those that are not looked at is what is picked
        ("is_crowded", np.bool_),  # too many pages are listed: the guard is being raised
        ("urgent_by_tier", np.int64, UPPER_TIERS),  # where tiers take turns: entries of each heap
        ("shares", np.float64, SHARERS),  # ... parts of the slots ...
        ("tags", np.float64, SHARERS),  # ... and when the stretch of the next turn of each begins
    ]
)


@compiled
def wide(number: Any) -> int:
    """A number from a row, as kernels count: those that are given it are compiled once.

    With the row's own 32 bits there would be another of each, and of all that they call. (`int`
    leaves an integer of a kernel as it is.)
    """
    return int(np.int64(number))
