"""The loop of the production policies: the scheduler's own shard picks, tick by tick.

The slots of a tick are filled at once, as in production, but no slot is filled before a signal
that came before it. After each tick the shard hears of its outcomes and of the signals since, and
then what was learned of the pages that they were about (`learning`).
"""

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import KNOWN, Columns, Hosts
from services.replay.engine import Events, take_events
from services.replay.learning import learn_from_crawl
from services.replay.selecting import Rules
from services.replay.trace import SIGNAL, Trace
from services.replay.virtual_shard import MATERIAL_CHANGE, TICK_DAYS, VirtualShard
from shared.policy.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled
def _learn(
    columns: Columns,
    hosts: Hosts,
    rules: Rules,
    multipliers: Floats,
    days: Floats,
    crawled: Integers,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    changed: NDArray[np.bool_],
) -> int:
    """Learn from the crawls of a tick, and from what happened meanwhile; the next event.

    `changed` is filled with what each crawl found; `multipliers` (hosts, AGE_BINS) with the burst
    multipliers that hold from then on.
    """
    for crawl in range(crawled.size):
        now, row = days[crawl], crawled[crawl]
        event = take_events(columns, hosts, rules, event_days, event_pages, event_kinds, event, now)
        if row >= 0:
            page = columns.pages[row]
            changed[crawl] = page.changed
            learn_from_crawl(columns, hosts, rules.learner, rules.bursts, row, now)
            if rules.bursts:
                multipliers[page.host, page.age] = page.multiplier
    return event


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
        tick_days: float = TICK_DAYS,
        material_change: float = MATERIAL_CHANGE,
    ) -> None:
        """Begin a replay.

        Args:
            trace: what happens.
            columns: what is known of the pages; an oracle's parameters are in it.
            hosts: what is known of the hosts.
            rules: of the policy.
            slot_days: the slots, rising.
            events: of the trace.
            tick_days: length of a tick; 0: one slot at a time.
            material_change: relative change of a parameter that the shard is told of.
        """
        self._columns, self._hosts, self._rules = columns, hosts, rules
        self._slot_days, self._events, self._event = slot_days, events, 0
        self._births = np.argsort(trace.born_days, kind="stable")
        self._birth_days = trace.born_days[self._births]
        self._born = 0
        self._to_announce: list[Integers] = []
        """Pages of which something may have been learned since the last announcement."""
        self._begins = _tick_begins(trace, slot_days, rules.uses_signals, tick_days)
        self._shard = VirtualShard(
            trace, slot_days.size / trace.days, rules.signal_delay_days, material_change
        )

    @property
    def work(self) -> dict[str, int]:
        """What the selection had to do beyond its usual work."""
        return self._shard.work

    def fill(self, first: int, stop: int, crawled: Integers) -> None:
        """Fill `crawled`, the pages of the slots from `first` to `stop`."""
        begins = self._begins[(self._begins > first) & (self._begins < stop)].tolist()
        begin = first
        for end in [*begins, stop] if stop > first else []:
            days = self._slot_days[begin:end]
            self._hear(days[0])
            self._announce()
            picked = self._shard.select(days)
            self._crawl(picked, days)
            crawled[begin - first : end - first] = picked
            begin = end

    def refitted(self, day: float) -> None:
        """Tell the shard of the new parameters of hosts and pages."""
        self._shard.learned_hosts(self._hosts, day)
        self._to_announce = [self._births[: self._born]]

    def _announce(self) -> None:
        if self._to_announce:
            rows = np.concatenate(self._to_announce)
            self._shard.learned(self._columns, rows, is_known=self._rules.learner == KNOWN)
            self._to_announce = []

    def _hear(self, until: float) -> None:
        """Take in what happened until a day: changes, which nobody sees, signals and births."""
        born = int(np.searchsorted(self._birth_days, until, "right"))
        if born > self._born:
            fresh = self._births[self._born : born]
            self._shard.add(fresh)
            self._born = born
            self._to_announce.append(fresh)
        first, days = self._event, self._events[0]
        if first == days.size or days[first] > until:
            return
        self._event = take_events(
            self._columns, self._hosts, self._rules, *self._events, first, until
        )
        if not self._rules.uses_signals:
            return
        days, pages, kinds = self._events
        since = slice(first, self._event)
        days, pages, kinds = days[since], pages[since], kinds[since]
        heard = (kinds >= SIGNAL) & (days >= self._columns.pages["born"][pages])
        if heard.any():
            slots = kinds[heard].astype(np.int64) - SIGNAL
            self._shard.signalled(pages[heard], days[heard], slots)
            self._to_announce.append(pages[heard])

    def _crawl(self, picked: Integers, days: Floats) -> None:
        """Crawl the pages picked for a tick, at their slots."""
        changed = np.zeros(picked.size, np.bool_)
        self._event = _learn(
            self._columns,
            self._hosts,
            self._rules,
            self._shard.multipliers,
            days,
            picked,
            *self._events,
            self._event,
            changed,
        )
        is_crawl = picked >= 0
        self._shard.crawled(picked[is_crawl], days[is_crawl], changed[is_crawl])
        self._to_announce.append(picked[is_crawl])


def _tick_begins(trace: Trace, slot_days: Floats, uses_signals: bool, tick_days: float) -> Integers:
    """Slots at which a tick begins: by time, and where something has happened before the slot."""
    if tick_days <= 0.0:
        return np.arange(slot_days.size)
    happenings = [trace.born_days, np.arange(0.0, trace.days, tick_days)]
    if uses_signals:
        happenings.append(trace.signal_days)
    return np.unique(np.searchsorted(slot_days, np.concatenate(happenings)))
