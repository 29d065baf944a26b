"""Replays in which signals are known only by polls, each of which costs a crawl.

A source tells of the pages of a site, or of a host; whoever polls it hears of each page that has
sent signals since the last poll, with the time of the last of them, as a sitemap's `lastmod` does.
The pages are picked and learned of by the production's own code, as in `by_calendar`. A poll takes
the slot in which it is due.
"""

import math
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.replay import columns as state
from services.replay.books import IDLE
from services.replay.by_calendar import CalendarRun
from services.replay.engine import TICK_DAYS
from services.replay.selecting import Rules
from services.replay.trace import Trace
from services.replay.values import EXACT
from services.replay.virtual_estimator import VirtualEstimator
from services.scheduler.demand.tally import demand_of
from shared.policy.multipliers import solve_multiplier
from shared.policy.polls import PollRecord, poll_interval, signal_worth, slot_price
from shared.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FIRST_DAYS: Final = 1.0
"""Until a source is polled for the first time, whatever the rhythm."""

LONGEST_DAYS: Final = 30.0
"""A source is polled so often at least, if by value."""

SOLVED_DAYS: Final = 10.0
"""λ₀ is solved for so often, from the demand of all pages, as the coordinator does."""

RECENT_CRAWLS: Final = 500
"""Their values say what a slot is worth now."""

AT_THRESHOLD: Final = 0.1
"""The quantile of them that does: others were lifted past the threshold by a signal."""

LEAST_SHARE: Final = 0.1
"""Of the budget; λ₀ supposes that so much is left for crawls."""


class Rhythm(Protocol):
    """Says when a source is polled again."""

    def interval(self, record: PollRecord, price: float) -> float:
        """Days from one poll to the next.

        Args:
            record: of the source.
            price: what a slot is worth, as far as is known; 0: it is not.
        """


class Fixed:
    """Every source is polled every so many days."""

    def __init__(self, days: float) -> None:
        self._days = days

    def interval(self, record: PollRecord, price: float) -> float:
        """The same for all."""
        del record, price
        return self._days


class ByValue:
    """A source is polled when the poll's value reaches what a slot is worth."""

    def interval(self, record: PollRecord, price: float) -> float:
        """When it does, if things stay as they are."""
        if not (price > 0.0 and record.days > 0.0):
            return FIRST_DAYS
        return min(poll_interval(record.worth_a_day(price), price), LONGEST_DAYS)


def sources_of(trace: Trace, *, by_host: bool) -> Integers:
    """Which source each host's pages are told of by: one of its own, or one a site."""
    return np.arange(len(trace.host_names)) if by_host else trace.site


class PolledRun:
    """A replay of a trace whose signals wait until somebody reads them."""

    def __init__(self, trace: Trace, slot_days: Floats, source: Integers, rhythm: Rhythm) -> None:
        """Begin a replay.

        Args:
            trace: what happens.
            slot_days: the slots, rising; each is a crawl or a poll.
            source: of each host. One that never sends a signal is never polled: nobody has to find
                out that it has none.
            rhythm: when sources are polled.
        """
        self._trace, self._slot_days, self._rhythm = trace, slot_days, rhythm
        self._estimator = VirtualEstimator(trace, 0.0)
        nothing = np.empty(0, np.int64)
        quiet = replace(
            trace, signal_days=np.empty(0), signal_pages=nothing, signal_sources=nothing
        )
        self._crawls = CalendarRun(
            quiet,
            state.new_columns(trace),
            state.new_hosts(trace),
            Rules(EXACT, 1.0, state.PRODUCTION, True, 0.0),
            slot_days,
            quiet.merged_events(nothing),
            self._estimator,
        )
        sent = source[trace.host[trace.signal_pages]]
        self._slots = state.source_slots(trace)
        count = int(source.max()) + 1
        order = np.argsort(sent, kind="stable")
        self._unread = np.split(order, np.searchsorted(sent[order], np.arange(1, count)))
        self._records = [PollRecord()] * count
        self._polled = np.zeros(count)
        self._due = np.where(np.bincount(sent, minlength=count) > 0, FIRST_DAYS, np.inf)
        self._solved = 0.0, 0, 0
        """The day on which λ₀ was solved for, and the polls and slots until then."""
        self._values = np.empty(0)
        self.multiplier = 0.0
        """λ₀; 0: not known yet."""
        self.polls = np.zeros(count, np.int64)
        """Of each source."""

    @property
    def price(self) -> float:
        """What a slot is worth: λ₀, or less as long as crawls are worth less than in the long run.

        All copies are fresh at day 0: for months even the best crawl buys less than λ₀.
        """
        if not self._values.size:
            return self.multiplier
        return slot_price(self.multiplier, float(np.quantile(self._values, AT_THRESHOLD)))

    def _solve(self, now: float, slots: int) -> None:
        """Solve for λ₀ by the demand for crawls, and the slots that polls have left of late."""
        since, polls, before = self._solved
        count, many = int(self.polls.sum()), max(slots - before, 1)
        share = max(1.0 - (count - polls) / many, LEAST_SHARE)
        budget = share * many / max(now - since, TICK_DAYS)
        demand = demand_of(self._crawls.shard.shard, self.multiplier)
        crawls = demand.unlimited() * SECONDS_PER_DAY
        self.multiplier = solve_multiplier(demand.thresholds, crawls, budget)
        self._solved = now, count, slots

    def run(self) -> Integers:
        """The page of each slot; `IDLE`: a poll, or nothing."""
        days = self._slot_days
        crawled = np.full(days.size, IDLE, np.int64)
        begin = 0
        while begin < days.size:
            if days[begin] >= self._solved[0] + (SOLVED_DAYS if self.multiplier else TICK_DAYS):
                self._solve(float(days[begin]), begin)
            source = int(self._due.argmin())
            if self._due[source] <= days[begin]:
                self._poll(source, float(days[begin]))
                begin += 1
                continue
            tick = (math.floor(days[begin] / TICK_DAYS) + 1) * TICK_DAYS
            end = int(np.searchsorted(days, min(tick, self._due[source])))
            end = max(end, begin + 1)
            self._crawls.fill(begin, end, crawled[begin:end])
            self._values = np.concatenate([self._values, self._crawls.values])[-RECENT_CRAWLS:]
            begin = end
        return crawled

    def _poll(self, source: int, now: float) -> None:
        """Read a source: the last signal of each page that has sent any since the last poll."""
        unread = self._unread[source]
        come = int(np.searchsorted(self._trace.signal_days[unread], now, "right"))
        signals, self._unread[source] = unread[:come], unread[come:]
        pages, last = np.unique(self._trace.signal_pages[signals][::-1], return_index=True)
        shown = np.sort(come - 1 - last)
        self._crawls.told(
            self._trace.signal_pages[signals[shown]],
            self._trace.signal_days[signals[shown]],
            self._slots[signals[shown]],
        )
        elapsed, self._polled[source] = now - self._polled[source], now
        price = self.price
        if price > 0.0:
            worth = float(self._worth(pages, price).sum())
            record = self._records[source].after(elapsed, pages.size, worth)
            self._records[source] = record
        self.polls[source] += 1
        self._due[source] = now + self._rhythm.interval(self._records[source], price)

    def _worth(self, pages: Integers, price: float) -> Floats:
        """By the price for which pages are crawled now: what is dear then is worth less to know."""
        alpha, kappa, gamma = self._estimator.believed(pages)
        return signal_worth(self._trace.importance[pages], alpha, kappa, gamma, price)
