"""The loop of every policy that crawls the page of the greatest value, compiled.

Each slot takes in what happened until then, goes to the page that `selecting.select` names, and
the crawl is learned from (`learning`). The production policies have a loop of their own, through
the scheduler's shard (`by_calendar`).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import SMOOTHED, Columns, Hosts
from services.replay.learning import count_quiet_days, learn_from_crawl, take_signal
from services.replay.selecting import (
    Lists,
    Rules,
    admit,
    new_lists,
    renew_lists,
    select,
    take_token,
)
from services.replay.trace import CHANGE, SIGNAL, Trace
from services.replay.virtual_estimator import Batch, VirtualEstimator
from shared.policy.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
TICK_DAYS: Final = 0.1
"""Slots of a tick are filled at once, and learned from together: a tenth of a wall second of the
scheduler's, where a day passes in a second."""

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
    begin: int,
    end: int,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    crawled: Integers,
    changed: NDArray[np.bool_],
) -> int:
    """Fill the slots from `begin` to `end` of a stretch; returns the next event.

    `crawled` gets the page of each slot, `changed` what its crawl found.
    """
    pages, limit = columns.pages, hosts.limit
    for slot in range(begin, end):
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
            changed[slot] = pages[row].changed
            learn_from_crawl(columns, rules.learner, row, now)
            admit(pages[row], row, rules, lists)
    return event


@compiled
def _admit_all(columns: Columns, rows: Integers, rules: Rules, lists: Lists) -> None:
    for row in rows:
        admit(columns.pages[row], row, rules, lists)


class ListsRun:
    """A replay with the lab's own selection, a stretch of slots at a time.

    Where the estimator learns, it does so tick by tick, and the lists hear of it at once: the
    parameters of pages that it has no news of are what they were.
    """

    def __init__(
        self,
        trace: Trace,
        columns: Columns,
        hosts: Hosts,
        rules: Rules,
        slot_days: Floats,
        events: Events,
        estimator: VirtualEstimator | None = None,
    ) -> None:
        self._columns, self._hosts, self._rules = columns, hosts, rules
        self._slot_days, self._events, self._event = slot_days, events, 0
        self._lists = new_lists(columns.pages.size)
        self._births, self._estimator = Births(trace), estimator

    @property
    def work(self) -> dict[str, int]:
        """`full_scans`: slots for which the lists could not vouch."""
        return {"full_scans": int(self._lists.sizes[2])}

    def fill(self, first: int, stop: int, crawled: Integers) -> None:
        """Fill `crawled`, the pages of the slots from `first` to `stop`."""
        ends = [stop] if stop > first else []
        if ends and self._rules.learner == SMOOTHED:
            # Bounds hold within a stretch because values rise: with falling γ they might not.
            count_quiet_days(self._columns, float(self._slot_days[first]))
        if self._estimator is not None:
            ticks = (self._slot_days[first:stop] / TICK_DAYS).astype(np.int64)
            ends = [*(first + 1 + np.flatnonzero(np.diff(ticks))).tolist(), *ends]
        begin = base = first
        for end in ends:
            event, days = self._event, self._slot_days[base:stop]
            changed = np.zeros(stop - base, np.bool_)
            self._event = _crawl_slots(
                self._columns,
                self._hosts,
                self._rules,
                self._lists,
                days,
                begin - base,
                end - base,
                *self._events,
                event,
                crawled[base - first :],
                changed,
            )
            if self._estimator is not None:
                tick, pages = slice(begin, end), crawled[begin - first : end - first]
                found = changed[begin - base : end - base]
                if self._learn(self._estimator, event, self._slot_days[tick], pages, found):
                    base = end
            begin = end

    def _learn(
        self,
        estimator: VirtualEstimator,
        event: int,
        days: Floats,
        crawled: Integers,
        changed: NDArray[np.bool_],
    ) -> bool:
        """Have a tick learned from; whether the lists are to begin anew."""
        if (born := self._births.until(days[-1])).size:
            estimator.add(born)
        is_crawl = crawled >= 0
        crawls = crawled[is_crawl], days[is_crawl], changed[is_crawl]
        signals = signals_between(self._events, event, self._event, self._rules.uses_signals)
        news = estimator.take(Batch(*signals, *crawls), float(days[-1]))
        if news.hosts:
            estimator.tell(self._columns, self._hosts, self._births.known)
            return True
        estimator.tell(self._columns, self._hosts, news.pages)
        _admit_all(self._columns, news.pages, self._rules, self._lists)
        return False


def signals_between(
    events: Events, first: int, stop: int, uses_signals: bool
) -> tuple[Integers, Floats, Integers]:
    """(pages, days, slots) of the signals among some events."""
    days, pages, kinds = events
    days, pages, kinds = days[first:stop], pages[first:stop], kinds[first:stop]
    heard = kinds >= SIGNAL if uses_signals else np.zeros(kinds.size, np.bool_)
    return pages[heard], days[heard], kinds[heard].astype(np.int64) - SIGNAL


class Births:
    """Which pages of a trace are known, as the days go by."""

    def __init__(self, trace: Trace) -> None:
        self._rows = np.argsort(trace.born_days, kind="stable")
        self._days = trace.born_days[self._rows]
        self._known = 0

    @property
    def known(self) -> Integers:
        """Rows of the pages that are known."""
        return self._rows[: self._known]

    def until(self, day: float) -> Integers:
        """Rows of the pages that have become known since the last call."""
        before = self._known
        self._known = int(np.searchsorted(self._days, day, "right"))
        return self._rows[before : self._known]
