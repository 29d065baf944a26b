"""The loop of every policy that crawls the page of the greatest value, compiled.

Each slot takes in what happened until then, goes to the page that `selecting.select` names, and
the crawl is learned from (`learning`). The production policies have a loop of their own, through
the scheduler's shard (`by_calendar`).
"""

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import Columns, Hosts
from services.replay.learning import learn_from_crawl, take_signal
from services.replay.selecting import (
    Lists,
    Rules,
    admit,
    new_lists,
    renew_lists,
    select,
    take_token,
)
from services.replay.trace import CHANGE, SIGNAL
from shared.policy.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Events = tuple[Floats, Integers, NDArray[np.int8]]
"""Those of `Trace.merged_events`, with the source slot added to the kind of a signal."""


@compiled
def take_events(
    columns: Columns,
    hosts: Hosts,
    rules: Rules,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    until: float,
) -> int:
    """Take in what happens from `event` on until a day; the next event.

    A change is noted for the crawl that will find it; signals are learned from.
    """
    while event < event_days.size and event_days[event] <= until:
        row, day = event_pages[event], event_days[event]
        page = columns.pages[row]
        if event_kinds[event] == CHANGE:
            page.changed = page.changed or day > page.born
        elif rules.uses_signals and day >= page.born:
            slot = event_kinds[event] - SIGNAL
            take_signal(columns, hosts, rules.learner, rules.signal_delay_days, row, slot, day)
        event += 1
    return event


@compiled
def _crawl_slots(
    columns: Columns,
    hosts: Hosts,
    rules: Rules,
    lists: Lists,
    slot_days: Floats,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    crawled: Integers,
) -> int:
    """Fill `crawled`, one page for each of `slot_days`; returns the next event."""
    pages, limit = columns.pages, hosts.limit
    for slot in range(slot_days.size):
        now, first = slot_days[slot], event
        renew_lists(pages, limit, rules, lists, slot_days, slot)
        event = take_events(columns, hosts, rules, event_days, event_pages, event_kinds, first, now)
        for heard in range(first, event):
            if event_kinds[heard] != CHANGE and rules.uses_signals:
                row = event_pages[heard]
                admit(pages[row], row, rules, lists)
        row = select(pages, hosts, rules, lists, now)
        crawled[slot] = row
        if row >= 0:
            take_token(hosts, pages[row].host, now)
            learn_from_crawl(columns, hosts, rules.learner, rules.bursts, row, now)
            admit(pages[row], row, rules, lists)
    return event


class ListsRun:
    """A replay with the lab's own selection, a stretch of slots at a time."""

    def __init__(
        self, columns: Columns, hosts: Hosts, rules: Rules, slot_days: Floats, events: Events
    ) -> None:
        self._columns, self._hosts, self._rules = columns, hosts, rules
        self._slot_days, self._events, self._event = slot_days, events, 0
        self._lists = new_lists(columns.pages.size)

    @property
    def work(self) -> dict[str, int]:
        """`full_scans`: slots for which the lists could not vouch."""
        return {"full_scans": int(self._lists.sizes[2])}

    def fill(self, first: int, stop: int, crawled: Integers) -> None:
        """Fill `crawled`, the pages of the slots from `first` to `stop`."""
        self._event = _crawl_slots(
            self._columns,
            self._hosts,
            self._rules,
            self._lists,
            self._slot_days[first:stop],
            *self._events,
            self._event,
            crawled,
        )
