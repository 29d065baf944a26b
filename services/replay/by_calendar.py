"""The loop of the production policies: the scheduler's own shard picks, tick by tick.

The slots of a tick are filled at once, as in production, but no slot is filled before a signal
that came before it. After each tick the shard hears of its outcomes, before the next one of the
signals since, and then what the estimator announces of both (`virtual_estimator`).
"""

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import Columns, Hosts
from services.replay.engine import TICK_DAYS, Births, Events, signals_between, take_events
from services.replay.learning import learn_from_crawl
from services.replay.selecting import Rules
from services.replay.trace import Trace
from services.replay.virtual_estimator import Batch, News, VirtualEstimator
from services.replay.virtual_shard import VirtualShard
from shared.policy.compiled import compiled
from shared.rules.host_objectives import FRESHNESS_ALONE, HostObjectives

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Signals = tuple[Integers, Floats, Integers]
"""Pages, days, and slots of their sources."""

TICK_SHARE: Final = 1 / 8
"""A tick has slots for so much of the pages at most: none is crawled twice before it is answered,
and where all of them wait for that the rest of a large budget would be lost."""


@compiled
def _crawl(
    columns: Columns,
    hosts: Hosts,
    rules: Rules,
    days: Floats,
    crawled: Integers,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    changed: NDArray[np.bool_],
) -> int:
    """Crawl the pages of a tick, and take in what happens meanwhile; the next event.

    `changed` is filled with what each crawl found.
    """
    for crawl in range(crawled.size):
        now, row = days[crawl], crawled[crawl]
        event = take_events(columns, hosts, rules, event_days, event_pages, event_kinds, event, now)
        if row >= 0:
            changed[crawl] = columns.pages[row].changed
            learn_from_crawl(columns, rules.learner, row, now)
    return event


class Learner(Protocol):
    """What learns: `VirtualEstimator`, or several of them."""

    def add(self, rows: Integers) -> None:
        """Pages become known."""

    def take(self, batch: Batch, day: float) -> News:
        """Learn from a batch."""


class Picker(Protocol):
    """What picks: `VirtualShard`, or several of them."""

    values: Floats

    @property
    def work(self) -> dict[str, int]:
        """What the selection had to do beyond its usual work."""

    def add(self, rows: Integers) -> None:
        """Pages become known."""

    def select(self, slot_days: Floats, before: float) -> Integers:
        """Fill the slots of a tick."""

    def crawled(self, rows: Integers, days: Floats, changed: NDArray[np.bool_]) -> None:
        """Picked pages were crawled."""

    def signalled(self, rows: Integers, days: Floats, slots: Integers) -> None:
        """Signals came."""

    def learned(self, news: News) -> None:
        """Take what is announced."""

    def told(self, columns: Columns, rows: Integers) -> None:
        """Take the parameters of pages from an oracle."""


HandOver = Callable[[Picker, Learner], tuple[Picker, Learner]]
"""Who picked and learned so far → who does from then on."""


class CalendarRun:
    """A replay of a trace through the scheduler's shard, a stretch of slots at a time."""

    def __init__(
        self,
        trace: Trace,
        columns: Columns,
        hosts: Hosts,
        rules: Rules,
        slot_days: Floats,
        events: Events,
        estimator: VirtualEstimator | None = None,
        tick_days: float = TICK_DAYS,
        objectives: HostObjectives = FRESHNESS_ALONE,
    ) -> None:
        """Begin a replay.

        Args:
            trace: what happens.
            columns: what is known of the pages; an oracle's parameters are in it.
            hosts: what is known of the hosts.
            rules: of the policy.
            slot_days: the slots, rising.
            events: of the trace.
            estimator: learns; without one the parameters are given.
            tick_days: length of a tick; 0: one slot at a time.
            objectives: what pages are crawled for.
        """
        self._columns, self._hosts, self._rules = columns, hosts, rules
        self._slot_days, self._events, self._event = slot_days, events, 0
        self._births = Births(trace)
        self._estimator: Learner | None = estimator
        self._begins = _tick_begins(trace, slot_days, rules.uses_signals, tick_days)
        self.shard = VirtualShard(trace, rules.signal_delay_days, objectives)
        self._picker: Picker = self.shard
        self._crawled: tuple[Integers, Floats, NDArray[np.bool_]] = (
            np.empty(0, np.int64),
            np.empty(0),
            np.empty(0, np.bool_),
        )
        """Pages, days and findings of the last tick, which the estimator has yet to hear of."""
        self._told: list[Signals] = []
        self.values = np.empty(0)
        """Of the crawls that the last call of `fill` picked by value."""

    @property
    def work(self) -> dict[str, int]:
        """What the selection had to do beyond its usual work."""
        return self._picker.work

    def fill(self, first: int, stop: int, crawled: Integers) -> None:
        """Fill `crawled`, the pages of the slots from `first` to `stop`."""
        begins = self._begins[(self._begins > first) & (self._begins < stop)].tolist()
        begin = first
        values = [np.empty(0)]
        for end in [*begins, stop] if stop > first else []:
            days = self._slot_days[begin:end]
            self._hear(days[0])
            before = self._slot_days[begin - 1] if begin else 0.0
            picked = self._picker.select(days, float(before))
            values.append(self._picker.values)
            self._crawl(picked, days)
            crawled[begin - first : end - first] = picked
            begin = end
        self.values = np.concatenate(values)

    def told(self, pages: Integers, days: Floats, slots: Integers) -> None:
        """Tell of signals that the trace does not have; they are heard of at the next tick."""
        self._told.append((pages, days, slots))

    def hand_over(self, until: float, to: HandOver) -> None:
        """Have others go on from a day, once all of before is learned."""
        self._hear(until)
        self._crawled = self._crawled[0][:0], self._crawled[1][:0], self._crawled[2][:0]
        if self._estimator is not None:
            self._picker, self._estimator = to(self._picker, self._estimator)

    def _hear(self, until: float) -> None:
        """Take in what happened until a day: changes, which nobody sees, births and signals; and
        what was learned of them, and of the last tick's crawls."""
        born = self._births.until(until)
        if born.size:
            self._picker.add(born)
            if self._estimator is not None:
                self._estimator.add(born)
            else:
                self._picker.told(self._columns, born)
        first, days = self._event, self._events[0]
        if first < days.size and days[first] <= until:
            self._event = take_events(
                self._columns, self._hosts, self._rules, *self._events, first, until
            )
        heard = signals_between(self._events, first, self._event, self._rules.uses_signals)
        if self._told:
            pages, days, slots = map(np.concatenate, zip(heard, *self._told, strict=True))
            order, self._told = np.argsort(days, kind="stable"), []
            heard = pages[order], days[order], slots[order]
        if heard[0].size:
            self._picker.signalled(*heard)
        if self._estimator is not None:
            self._picker.learned(self._estimator.take(Batch(*heard, *self._crawled), until))

    def _crawl(self, picked: Integers, days: Floats) -> None:
        """Crawl the pages picked for a tick, at their slots."""
        changed = np.zeros(picked.size, np.bool_)
        self._event = _crawl(
            self._columns,
            self._hosts,
            self._rules,
            days,
            picked,
            *self._events,
            self._event,
            changed,
        )
        is_crawl = picked >= 0
        self._crawled = picked[is_crawl], days[is_crawl], changed[is_crawl]
        self._picker.crawled(*self._crawled)


def _tick_begins(trace: Trace, slot_days: Floats, uses_signals: bool, tick_days: float) -> Integers:
    """Slots at which a tick begins: by time, where something has happened before the slot, and
    where the one before has had slots for its share of the pages."""
    if tick_days <= 0.0:
        return np.arange(slot_days.size)
    # The end is one of them: a slot may come at that very moment, as within longer traces.
    happenings = [trace.born_days, np.arange(0.0, trace.days + tick_days, tick_days)]
    if uses_signals:
        happenings.append(trace.signal_days)
    begins = np.unique(np.searchsorted(slot_days, np.concatenate(happenings)))
    most, ends = max(int(TICK_SHARE * len(trace)), 1), [*begins[1:].tolist(), slot_days.size]
    longer = [np.arange(begin, end, most) for begin, end in zip(begins.tolist(), ends, strict=True)]
    return np.concatenate([begins[:0], *longer])
