"""The scheduler's own shard at a virtual clock: what a replay tells it, and what it picks.

Everything goes in as it does in production, but without Kafka: pages are upserted, signals,
outcomes and parameters are applied as events, and the calendar fills the slots of a tick.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import Columns
from services.replay.trace import Trace
from services.replay.virtual_estimator import SLOT_NAMES, News, url_of
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.rules import PickingRules, ShardRules
from services.scheduler.state.shard import Shard
from shared.contracts.identity import PageIdentity
from shared.contracts.messages import PageUpdate
from shared.contracts.request_ids import microseconds
from shared.rules.host_objectives import FRESHNESS_ALONE, HostObjectives
from shared.rules.page_events import CHANGED, UNCHANGED
from shared.units import SECONDS_PER_DAY

CLOCK_SPEED: Final = SECONDS_PER_DAY
"""Clock seconds in a wall second: a day a second, at which whole systems are run, too."""

_NO_LIMIT: Final = 1e6
"""Crawls a second of a host without a limit."""

_NEVER_TIMES_OUT: Final = 1e9
"""Seconds; every request of a replay is answered at the end of its tick."""

_RETRY_SECONDS: Final = 300.0
"""Of failed crawls, which replays have none of."""


_SHORTEST_GAP: Final = 1e-6
"""Days between two slots, for the rate of slots."""


class VirtualShard:
    """A shard of the pages of a trace. Pages go by their row in the trace, which is their id."""

    def __init__(
        self,
        trace: Trace,
        signal_delay_days: float,
        objectives: HostObjectives = FRESHNESS_ALONE,
    ) -> None:
        self._trace = trace
        self.rules = ShardRules(
            PickingRules(_NEVER_TIMES_OUT, CLOCK_SPEED, objectives=objectives),
            signal_delay_days * SECONDS_PER_DAY,
            _RETRY_SECONDS,
            math.inf,
            _NO_LIMIT,
        )
        self.values = np.empty(0)
        """Of the pages picked last, where they were picked by value."""
        self.take(make_shard(0, self.rules, len(trace)))

    def take(self, shard: Shard) -> None:
        """Go on with a shard, which has some of the trace's pages, or none yet."""
        self.shard, trace = shard, self._trace
        for number, name in enumerate(trace.host_names):
            self.shard.hosts.intern(name)
            if trace.host_limit[number] < np.inf:
                limit = float(trace.host_limit[number]) / SECONDS_PER_DAY
                self.shard.limit_host(name, limit, None, 0.0)

    @property
    def work(self) -> dict[str, int]:
        """What the selection had to do beyond its usual work."""
        selector = self.shard.selector
        return {
            "rebuilds": selector.rebuilds,
            "sweeps": selector.sweeps,
            "uncertain_picks": selector.uncertain_picks,
        }

    def add(self, rows: NDArray[np.int64]) -> None:
        """Pages become known, on the day they are born."""
        trace = self._trace
        for row in rows.tolist():
            born = float(trace.born_days[row]) * SECONDS_PER_DAY
            url = url_of(trace, row)
            update = PageUpdate(
                "upsert",
                url,
                importance=float(trace.importance[row]),
                crawled_at=born if trace.held[row] else None,
            )
            identity = PageIdentity(url, trace.host_names[trace.host[row]], row)
            self.shard.upsert(identity, update, born)

    def select(self, slot_days: NDArray[np.float64], before: float) -> NDArray[np.int64]:
        """Fill the slots of a tick; the page of each, or −1.

        `before` is the day of the slot before: by that the rate of slots is known.
        """
        gap = max(float(slot_days[0]) - before, _SHORTEST_GAP)
        rate = 1.0 / (gap * SECONDS_PER_DAY)
        picks = self.shard.selector.select(slot_days * SECONDS_PER_DAY, rate, 0.0)
        rows = picks["row"]
        self.values = picks["value"][(rows >= 0) & np.isfinite(picks["value"])]
        return np.where(rows >= 0, self.shard.page_ids_of(rows), -1)

    def crawled(
        self, rows: NDArray[np.int64], days: NDArray[np.float64], changed: NDArray[np.bool_]
    ) -> None:
        """Picked pages were crawled; `changed` says whether they had changed."""
        seconds = days * SECONDS_PER_DAY
        outcomes = Outcomes(
            rows,
            seconds,
            np.where(changed, CHANGED, UNCHANGED).astype(np.int8),
            microseconds(seconds),
            np.zeros(rows.size, np.uint32),
        )
        self.shard.outcomes(outcomes)

    def signalled(
        self, rows: NDArray[np.int64], days: NDArray[np.float64], slots: NDArray[np.int64]
    ) -> None:
        """Signals came, each from the source in a slot of its page's host."""
        names = [SLOT_NAMES[slot] for slot in slots.tolist()]
        self.shard.signals(rows, days * SECONDS_PER_DAY, names)

    def learned(self, news: News) -> None:
        """Take what the estimator announces."""
        if news.pages.size:
            self.shard.parameters(news.pages, news.alpha, news.kappa, news.gamma, news.activity)
        self.shard.host_parameters(news.hosts)

    def told(self, columns: Columns, rows: NDArray[np.int64]) -> None:
        """Take the parameters of pages from an oracle: α, κ̄ and γ."""
        pages = columns.pages[rows]
        rate, kappa, gamma = (pages[name].copy() for name in ("rate", "kappa", "gamma"))
        self.shard.parameters(rows, rate, kappa, gamma)
