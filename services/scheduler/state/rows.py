"""What a shard remembers of a page, of a crawl that is not settled, and of a host.

Fixed-width rows and not separate columns, because a pick looks at a page as a whole: one cache
line instead of a dozen. `rows["importance"]` is still a column. What every look at a page needs is
in `PAGE`, 48 bytes; what only events need is in `RECORD`, 20 bytes; what holds for few pages at a
time, in `ATTEMPT`, and what holds for pages with signals, in `signal_times`.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.store.page_status import ACTIVE, GONE, NEVER, REMOVED
from shared.store.reserved import reserved

__all__ = [
    "ACTIVE",
    "ASLEEP",
    "ATTEMPT",
    "GONE",
    "GROUP",
    "HOST",
    "LINE",
    "NEVER",
    "NO_GROUP",
    "NO_HOST",
    "NO_LINE",
    "PAGE",
    "RECORD",
    "REMOVED",
    "UNSET",
    "Rows",
    "clear",
    "empty_rows",
    "reserved_rows",
]

Rows: TypeAlias = NDArray[Any]
"""A structured array of `PAGE`, `RECORD`, `ATTEMPT`, `HOST`, `GROUP` or `LINE`."""

PAGE: Final = np.dtype(
    [
        ("importance", np.float32),
        ("alpha", np.float32),  # per day, burst multiplier included
        ("kappa", np.float32),  # of one signal of the usual weight
        ("gamma", np.float32),  # per day
        ("last_crawled_at", np.float64),
        ("signals", np.float32),  # since the last crawl, each by the weight of its source
        ("due_staleness", np.float32),  # s* under its guard; NaN: not known
        ("max_age", np.float32),  # seconds; infinite: no bound
        ("host", np.int32),
        ("attempt", np.int32),  # row of its ATTEMPT; 0: none
        ("bucket", np.uint16),  # where the calendar has it
        ("status", np.uint8),
        ("listing", np.uint8),  # counts the times that the calendar has listed it
    ],
    align=True,
)

RECORD: Final = np.dtype(
    [
        ("next_of_host", np.int32),  # row of another page of the host; -1: the last one
        ("updated_low", np.uint32),  # when it was updated last ...
        ("updated_high", np.uint16),  # ... see `records.updated_at`
        ("change", np.uint16),  # when it changed last: see `records.days_since_change`
        ("burst", np.int16),  # multiplier of its own rate: see `records.multiplier_of`
        ("digest", np.uint16),  # part of the hash of its content's digest; 0: none
        ("directory", np.uint16),  # of its URL: see `shared.store.directories`
        ("activity", np.uint8),  # by its signals ever, as far as was said: `page_factors`
        ("page_class", np.uint8),  # number of its class in the shard (`page_classes`); 0: none
    ],
    align=True,
)
"""A row for each row of `PAGE`. `records` knows how to read it; zeros: nothing is known."""

ATTEMPT: Final = np.dtype(
    [
        ("deadline", np.float64),  # of the request in flight; NEVER: none
        ("retry_at", np.float64),  # not before: the last crawl failed, or will have failed then
        ("last_attempt_at", np.float64),
        ("requested_us", np.int64),  # of the last request: Unix microseconds
        ("settled_at", np.float64),  # crawls up to then were before those that nobody answered
        ("urgent_at", np.float64),  # from then on it is to be crawled at once; NEVER: nobody asks
        ("next_free", np.int32),
        ("failures", np.int16),  # outcomes in a row that were failures
        ("unanswered", np.uint8),  # requests in a row before the last one that nobody answered
        ("misses", np.uint8),  # 404s among the failures: see `page_events.failures_after`
    ],
    align=True,
)
"""Of a page that is in flight, or whose last crawl failed; so of one that is gone, or was. And of
one that somebody asks for at once."""

HOST: Final = np.dtype(
    [
        ("rate", np.float64),  # crawls per second; it and the block are what holds (`host_rules`)
        ("tokens", np.float64),
        ("filled_at", np.float64),
        ("blocked_until", np.float64),
        ("typical_value", np.float64),  # of the pages crawled of late
        ("held_back", np.float64),  # greatest priority among its pages that have to wait for it
        ("guard", np.float64),  # pages outside its pen are below; 0: no guard of its own
        ("swept_from", np.float64),  # ... or this, while it is lowered (`host_sweeps`); or 0
        ("tier_guards", np.float64, 3),  # the same of its upper tiers, where these take turns
        ("ready_at", np.float64),  # of its parking that counts
        ("offer", np.float64),  # priority for which its pen takes part while slots are filled
        ("weighed_at", np.float64),  # when its pen was looked at last
        ("bound", np.float64),  # its pages are worth no more (`picking.lines`) ...
        ("expires_at", np.float64),  # ... until then; NEVER: no bound is known
        ("pages", np.int32),
        ("removed", np.int32),  # pages that are still on its list
        ("first_page", np.int32),  # row of one of its pages; -1: none
        ("pen", np.int32),  # first item of its pen; 0: none
        ("penned", np.int32),  # items in its pen
        ("group", np.int32),  # number of its domain that has a limit; 0: none (`groups`)
        ("named", np.int32),  # the same of the group that outcomes name, if it is not that one
        ("line", np.int32),  # of hosts that wait for the same groups: it may be in; 0: none
        ("in_line", np.int32),  # ... which it is in, if any; and where (`picking.line_heaps`):
        ("line_below", np.int32),  # first of the hosts below it
        ("line_next", np.int32),  # the next one below the same host
        ("line_before", np.int32),  # the one before it there, or that they are below
        ("sweep_at", np.int32),  # 1 + row at which placing its pages anew goes on; 0: the first one
        ("sweep_end", np.int32),  # ... and where it ends
        ("sweeps_next", np.int32),  # the next host whose pages wait to be placed anew; -1: none
        ("most_open", np.int16),  # requests that may be on their way at once; 0: any number
        ("open_left", np.int16),  # how many more of them may be made (`open_requests`)
        ("is_limited", np.uint8),  # its ripe pages go to its pen
        ("is_parked", np.uint8),  # it waits for its next token, or in a line
        ("is_in_sweeps", np.uint8),  # its pages wait to be placed anew
        ("own_limit", np.uint8),
        ("is_paced", np.uint8),  # no two crawls nearer to each other than its rate says
    ],
    align=True,
)

GROUP: Final = np.dtype(
    [
        ("rate", np.float64),  # crawls per second, over all shards
        ("since", np.float64),  # from then on its slots are counted ...
        ("first_slot", np.float64),  # ... from here
        ("low", np.float64),  # where the points of the shard's slots begin ...
        ("high", np.float64),  # ... and end; where they begin: the shard has none
        ("kept", np.float64),  # clock seconds for which a slot may be used
        ("used", np.int64),  # number of the last slot that is used, or is nobody's
    ],
    align=True,
)
"""Hosts that share a limit."""

NO_GROUP: Final = 0

LINE: Final = np.dtype(
    [
        ("offer", np.float64),  # for which it takes part while slots are filled
        ("level", np.float64),  # what was crawled last of its hosts was worth
        ("ready_at", np.float64),  # of its parking that counts
        ("group", np.int32),  # number of the group that its hosts are of by their domains; 0: none
        ("named", np.int32),  # the same of the one that outcomes name
        ("first", np.int32),  # the host on top of its heap; -1: nobody waits
        ("is_parked", np.uint8),  # it waits for its groups
        ("is_offered", np.uint8),  # it takes part while slots are filled
    ],
    align=True,
)
"""Hosts of the same groups, which wait for these together (`picking.lines`)."""

NO_LINE: Final = 0

NO_HOST: Final = -1
"""Number of no host."""

ASLEEP: Final = 0xFFFF
"""Bucket of a page that nothing but an event can make due."""

UNSET: Final = np.float32(np.nan)
"""`due_staleness` after a change of what it is computed from."""


def empty_rows(count: int) -> tuple[Rows, Rows]:
    """So many rows of pages and their records, which are none before `clear`."""
    return np.zeros(count, PAGE), np.zeros(count, RECORD)


def reserved_rows(count: int) -> tuple[Rows, Rows]:
    """As `empty_rows`, with more at the end (see `reserved`). Memory is taken by use."""
    return reserved(count, PAGE), reserved(count, RECORD)


def clear(pages: Rows, records: Rows) -> None:
    """Make rows free. Where the calendar has them stays as it is: it looks there once more. From
    pens they are taken before (`Selector.forget`)."""
    for name in ("importance", "alpha", "kappa", "gamma", "signals", "attempt"):
        pages[name] = 0
    pages["status"] = REMOVED
    pages["last_crawled_at"] = NEVER
    pages["max_age"] = np.inf
    pages["due_staleness"] = UNSET
    for name in ("updated_low", "updated_high", "change", "burst", "digest"):
        records[name] = 0
    records["directory"] = records["activity"] = records["page_class"] = 0
