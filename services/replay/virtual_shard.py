"""The scheduler's own shard at a virtual clock: what a replay tells it, and what it picks.

Everything goes in as it does in production, but without Kafka: pages are upserted, signals,
outcomes and parameters are applied as events, and the calendar fills the slots of a tick.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import Columns, Hosts
from services.replay.learning import source_evidence
from services.replay.trace import Trace
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.events import Outcomes
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.identity import PageIdentity
from shared.contracts.messages import HostParameters, PageUpdate
from shared.rules.page_events import CHANGED, UNCHANGED
from shared.store.history import SOURCES
from shared.units import SECONDS_PER_DAY

CLOCK_SPEED: Final = SECONDS_PER_DAY
"""Clock seconds in a wall second: a day a second, at which whole systems are run, too."""

TICK_DAYS: Final = 0.1 * CLOCK_SPEED / SECONDS_PER_DAY
"""The scheduler fills the slots of a tenth of a wall second at once."""

_NO_LIMIT: Final = 1e6
"""Crawls a second of a host without a limit."""

_NEVER_TIMES_OUT: Final = 1e9
"""Seconds; every request of a replay is answered at the end of its tick."""

_RETRY_SECONDS: Final = 300.0
"""Of failed crawls, which replays have none of."""

MATERIAL_CHANGE: Final = 0.05
"""Relative change of a parameter from which on it is announced: the setting's default."""

SLOT_NAMES: Final = tuple(str(slot) for slot in range(SOURCES))
"""What sources are called here: by their slot. The last one is that of all other sources."""


class VirtualShard:
    """A shard of the pages of a trace. Pages go by their row in the trace, which is their id."""

    def __init__(
        self,
        trace: Trace,
        crawls_per_day: float,
        signal_delay_days: float,
        material_change: float = MATERIAL_CHANGE,
    ) -> None:
        self._trace = trace
        self._material = material_change
        # What the shard was told last: α, κ̄, γ by page; A/B, κ̄ and the slots' κ by host.
        self._told_pages = np.full((3, len(trace)), np.nan)
        self._told_hosts = np.full((2 + SOURCES, len(trace.host_names)), np.nan)
        self._rate = crawls_per_day / SECONDS_PER_DAY
        rules = ShardRules(
            PickingRules(_NEVER_TIMES_OUT, CLOCK_SPEED),
            signal_delay_days * SECONDS_PER_DAY,
            _RETRY_SECONDS,
            math.inf,
            _NO_LIMIT,
        )
        self.shard = make_shard(0, rules, len(trace))
        for number, name in enumerate(trace.host_names):
            self.shard.hosts.intern(name)
            if trace.host_limit[number] < np.inf:
                limit = float(trace.host_limit[number]) / SECONDS_PER_DAY
                self.shard.limit_host(name, limit, None, 0.0)

    @property
    def multipliers(self) -> NDArray[np.float64]:
        """Burst multipliers of each host by age, (hosts, AGE_BINS); to be written to."""
        return self.shard.hosts.learned.tables.multipliers

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
            url = trace.urls[row] if trace.urls else ""
            update = PageUpdate(
                "upsert",
                url,
                importance=float(trace.importance[row]),
                crawled_at=born if trace.held[row] else None,
            )
            identity = PageIdentity(url, trace.host_names[trace.host[row]], row)
            self.shard.upsert(identity, update, born)

    def select(self, slot_days: NDArray[np.float64]) -> NDArray[np.int64]:
        """Fill the slots of a tick; the page of each, or −1."""
        picks = self.shard.selector.select(slot_days * SECONDS_PER_DAY, self._rate, 0.0)
        rows = picks["row"]
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
            np.floor(seconds * 1e6 + 0.5).astype(np.int64),
            np.zeros(rows.size, np.uint32),
        )
        self.shard.outcomes(outcomes)

    def signalled(
        self, rows: NDArray[np.int64], days: NDArray[np.float64], slots: NDArray[np.int64]
    ) -> None:
        """Signals came, each from the source in a slot of its page's host."""
        names = [SLOT_NAMES[slot] for slot in slots.tolist()]
        self.shard.signals(rows, days * SECONDS_PER_DAY, names)

    def learned(self, columns: Columns, rows: NDArray[np.int64], *, is_known: bool) -> None:
        """Announce parameters of pages that changed materially: α, κ̄ and γ.

        A page without a crawl record has none of its own but γ, unless an oracle gave them
        (`is_known`).
        """
        pages = columns.pages[rows]
        alpha = pages["rate"] if is_known else columns.alpha[rows]
        figures = np.stack([alpha, pages["kappa"], pages["gamma"]])
        if not is_known:
            figures[:2, columns.records[rows] == 0] = np.nan
        moved = self._moved(figures, self._told_pages[:, rows])
        rows, figures = rows[moved], figures[:, moved]
        if rows.size:
            self._told_pages[:, rows] = figures
            self.shard.parameters(rows, *figures)

    def learned_hosts(self, hosts: Hosts, day: float) -> None:
        """Announce what changed materially in the priors of hosts, at a refit."""
        evidence, multipliers = source_evidence(hosts), self.multipliers
        rates = hosts.prior_shape / hosts.prior_rate
        # A source that never sent a signal has no weight yet.
        heard = np.where(hosts.signals > 0, evidence, np.nan)
        figures = np.vstack([rates, hosts.evidence, heard.T])
        chosen = np.flatnonzero(self._moved(figures, self._told_hosts))
        self._told_hosts[:, chosen] = figures[:, chosen]
        self.shard.host_parameters(
            [
                HostParameters(
                    self._trace.host_names[number],
                    float(rates[number]),
                    float(hosts.evidence[number]),
                    list(SLOT_NAMES[:-1]),
                    evidence[number].tolist(),
                    multipliers[number].tolist(),
                    day * SECONDS_PER_DAY,
                )
                for number in chosen.tolist()
            ]
        )

    def _moved(self, figures: NDArray[np.float64], told: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which columns have a figure that is materially another than what was told, NaN: none."""
        # Evidence may be infinite, of an oracle whose signals are all true.
        with np.errstate(invalid="ignore"):
            near = (np.abs(figures - told) <= self._material * told) & np.isfinite(told)
        far = ~near & (figures != told) & ~np.isnan(figures)
        return np.asarray(far.any(axis=0))
