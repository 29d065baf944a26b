"""The estimator's own shard at a virtual clock: what a replay tells it, and what it has learned.

Everything goes in as it does in production, but without Kafka and PostgreSQL: pages are added,
signals and outcomes are applied in batches, pages are fitted, priors are refitted when the worker
would refit them, and only what moved materially is announced. A batch is what has come since the
one before. What a replay leaves out is the limit on the time that refits may take, which pages by
the thousand never reach.
"""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.estimator import effects
from services.estimator.application import ShardEffects, take_events
from services.estimator.columns import UPSERT, EventColumns, UpdateColumns
from services.estimator.learning import (
    host_parameters,
    learn,
    material_hosts,
    material_pages,
)
from services.estimator.refitting import Refits, merged, refit
from services.estimator.shard import Shard
from services.replay.columns import Columns, Hosts
from services.replay.trace import Trace
from shared.contracts.identity import PageIdentity
from shared.contracts.messages import HostParameters
from shared.rules.page_events import CHANGED, SIGNAL, UNCHANGED
from shared.store.class_numbers import AS_IT_IS
from shared.store.history import SOURCES
from shared.store.page_status import NEVER
from shared.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MATERIAL_CHANGE: Final = 0.05
"""Relative change of a parameter from which on it is announced: the setting's default."""

PRIOR_REFIT_DAYS: Final = 2.0
"""Days between two refits of host priors: the setting's default."""

SLOT_NAMES: Final = tuple(str(slot) for slot in range(SOURCES))
"""What sources are called here: by their slot. The last one is that of all other sources."""


class Batch(NamedTuple):
    """What has happened since the batch before, as far as anybody sees it; pages go by their row
    in the trace."""

    signal_pages: Integers
    signal_days: Floats
    signal_slots: Integers
    crawled: Integers
    crawl_days: Floats
    changed: NDArray[np.bool_]
    """What each crawl found."""


class News(NamedTuple):
    """What the scheduler is told after a batch."""

    pages: Integers
    """Rows in the trace; one element a page in what follows."""
    alpha: Floats
    """Per day; NaN, as κ̄ is: the page has no crawl record."""
    kappa: Floats
    gamma: Floats
    activity: NDArray[np.uint8]
    hosts: list[HostParameters]


class VirtualEstimator:
    """What the estimator knows of a trace's pages."""

    def __init__(
        self,
        trace: Trace,
        signal_delay_days: float,
        material_change: float = MATERIAL_CHANGE,
        refit_days: float = PRIOR_REFIT_DAYS,
    ) -> None:
        self.shard = Shard(0)
        self._trace = trace
        self._delay = signal_delay_days * SECONDS_PER_DAY
        self._material = material_change
        self._refits = Refits(refit_days)
        self._added: list[Integers] = []

    def add(self, rows: Integers) -> None:
        """Pages become known, each on the day it is born."""
        trace, shard = self._trace, self.shard
        born = trace.born_days[rows] * SECONDS_PER_DAY
        mine = shard.add_pages(
            [
                (PageIdentity(url_of(trace, row), trace.host_names[trace.host[row]], row), seen_at)
                for row, seen_at in zip(rows.tolist(), born.tolist(), strict=True)
            ]
        )
        updates = UpdateColumns(
            mine,
            born,
            np.full(mine.size, UPSERT, np.int8),
            trace.importance[rows],
            np.full(mine.size, np.nan),
            np.where(trace.held[rows], born, NEVER),
            np.zeros(mine.size, np.bool_),
            np.full(mine.size, AS_IT_IS, np.int16),
        )
        effects.apply_updates(shard.pages, shard.rings, shard.by_source, updates, self._delay)
        self._added.append(mine)

    def take(self, batch: Batch, day: float) -> News:
        """Learn from a batch, and refit priors where that is due.

        Args:
            batch: what has come.
            day: on which it is taken in.
        """
        now = float(day) * SECONDS_PER_DAY
        is_due = self._refits.are_due([self.shard], now)
        done = self.applied(batch)
        both = [done]
        if is_due:
            refitted = refit([self.shard], self._material)
            both = merged({self.shard.number: done}, [self.shard], refitted)
            self._refits.noted([self.shard], now, 0.0)
        return self.news(both[0], now)

    def believed(self, rows: Integers) -> tuple[Floats, Floats, Floats]:
        """(α, with its burst and the belief in quiet pages; κ̄; γ), as they go by the learned."""
        shard = self.shard
        mine = shard.rows_of(rows)
        pages, known = shard.pages[mine], len(shard.hosts.names)
        evidence = shard.hosts.learning.take(np.arange(known)).evidence
        is_own = shard.rings.seen[mine] > 0
        own = pages["unsignalled_change_rate"] * shard.rings.multiplier[mine]
        of_host = pages["host"]
        priors = shard.hosts.priors
        by_host = (priors.shape / priors.rate)[of_host] * pages["factor"]
        belief = shard.hosts.records["quiet_belief"][of_host]
        is_unchanged = pages["last_changed_at"] == NEVER
        return (
            np.where(is_own, own, by_host) * np.where(is_unchanged, belief, 1.0),
            np.where(is_own, pages["signal_evidence"], evidence[of_host]),
            pages["signal_rate"],
        )

    def tell(self, columns: Columns, hosts: Hosts, rows: Integers) -> None:
        """Write what is known of pages, and of all hosts, to the columns of the lab's selection."""
        shard, names = self.shard, self._trace.host_names
        learning = shard.hosts.learning.take(np.arange(len(shard.hosts.names)))
        told = columns.pages
        told["rate"][rows], told["kappa"][rows], told["gamma"][rows] = self.believed(rows)
        number = {name: row for row, name in enumerate(names)}
        theirs = [number[name] for name in shard.hosts.names]
        weights = learning.source_evidence / learning.evidence[:, np.newaxis]
        hosts.weights[theirs] = weights

    def applied(self, batch: Batch) -> ShardEffects:
        """Learn from a batch; what it did to the shard."""
        shard = self.shard
        count = batch.signal_pages.size
        rows = shard.rows_of(np.concatenate([batch.signal_pages, batch.crawled]))
        times = np.concatenate([batch.signal_days, batch.crawl_days]) * SECONDS_PER_DAY
        kinds = np.where(batch.changed, CHANGED, UNCHANGED).astype(np.int8)
        kinds = np.concatenate([np.full(count, SIGNAL, np.int8), kinds])
        hosts = np.where(rows[:count] >= 0, shard.pages["host"][rows[:count]], -1)
        slots = np.zeros(rows.size, np.int8)
        names = [SLOT_NAMES[slot] for slot in batch.signal_slots.tolist()]
        slots[:count], new_sources = shard.hosts.slots(hosts, names)
        # At the same moment signals come first, as in the estimator.
        order = np.argsort(times, kind="stable")
        digests = np.zeros(rows.size, np.int64)
        events = EventColumns(rows[order], times[order], kinds[order], digests[order], slots[order])
        taken = take_events(shard, events, self._delay)
        added = np.concatenate([np.empty(0, np.int64), *self._added])
        self._added = []
        done = dataclasses.replace(
            ShardEffects.nothing(shard),
            touched=np.setdiff1d(taken.touched, added),
            added=added,
            learned=taken.learned,
            # A new host is announced where its prior is not that which every scheduler supposes.
            counted_hosts=np.unique(
                np.concatenate(
                    [taken.hosts, shard.pages["host"][added], np.array(sorted(new_sources), int)]
                )
            ),
            new_sources=new_sources,
        )
        learn(done)
        return done

    def news(self, done: ShardEffects, now: float) -> News:
        """What the scheduler is told of effects; `now` in seconds."""
        shard = self.shard
        rows = material_pages(done, self._material)
        hosts = material_hosts(done, self._material)
        pages = shard.pages[rows]
        return News(
            pages["page_id"].copy(),
            pages["unsignalled_change_rate"].copy(),
            pages["signal_evidence"].copy(),
            pages["signal_rate"].copy(),
            pages["announced_activity"].copy(),
            [
                host_parameters(shard, row, figures, now)
                for row, figures in zip(
                    hosts.tolist(), shard.hosts.announced[hosts].tolist(), strict=True
                )
            ],
        )


def url_of(trace: Trace, row: int) -> str:
    """A page's URL; populations have none."""
    return trace.urls[row] if trace.urls else ""
