"""Reports of a shard to the coordinator: its demand, what is ripe, and what it has crawled."""

import itertools
import math
import uuid
from collections.abc import Sequence
from typing import Final

import numpy as np

from services.scheduler.demand.class_reports import class_crawls
from services.scheduler.demand.grids import is_near_the_end
from services.scheduler.demand.patience import Patience
from services.scheduler.demand.ripe import count_ripe
from services.scheduler.demand.tally import Demand
from services.scheduler.state.report_notes import REASONS
from services.scheduler.state.selector import Weighed
from services.scheduler.state.shard import Shard
from shared.contracts.messages import DemandCurve
from shared.contracts.reported import GroupPages, ReasonCrawls

_WEIGHED: Final = 20_000
"""Pages looked at for the reports of a process, beyond those that are ripe for certain."""

_LEAST_WEIGHED: Final = 1_000
"""... and for each of them at least."""

MANY_PAGES: Final = 0.1
"""A host with such a part of the pages counts for what the shard can make of its slots."""


def _reasons(by_tier: Sequence[int], seconds: float, shares: Sequence[float]) -> list[ReasonCrawls]:
    """Requests of so many seconds, and what is kept for each reason."""
    crawls = dict(zip(REASONS, by_tier, strict=False))
    # What is tried again has its part of what goes by value.
    kept = dict(zip((REASONS[0], *REASONS[2:]), shares, strict=False))
    return [
        ReasonCrawls(
            reason,
            crawls.get(reason, 0) / seconds if seconds > 0 else 0.0,
            kept.get(reason, 0.0),
        )
        for reason in REASONS
        if crawls.get(reason) or kept.get(reason)
    ]


class DemandReporter:
    """Makes the reports of one shard, from when it is loaded until it goes.

    They are a run of their own: what the shard made of its slots before it was loaded, here or
    elsewhere, says nothing about what it can make of them now. So does what it made of them while
    nothing was picked of it (it was to be split; the group handed out shards), or while a host with
    many of its pages was not to be crawled (it asked for a pause): another run begins. So it does
    where the clock was set: two times then do not tell what lies between them.
    """

    def __init__(self, shard: Shard, instance: str, horizon: float) -> None:
        """Report a shard.

        Args:
            shard: the shard.
            instance: the process, as it is called.
            horizon: clock seconds in which the ripe pages are to be crawled.
        """
        self._shard = shard
        self._instance = instance
        self._begin_run()
        self._horizon = horizon
        self._ripe: list[float] = []
        self._weighed: Weighed | None = None
        self._reported_at = shard.filled_until
        self._misses = False
        self._patience = Patience()
        self.is_prepared = False
        """Whether what is ripe is known for the next report."""
        self.demand: Demand | None = None

    def _begin_run(self) -> None:
        self._run = uuid.uuid4().hex[:16]
        self._sequence = itertools.count(1)

    def is_stale(self, multiplier: float) -> bool:
        """Whether the demand is of too many other parameters, or misses a limit that binds, or its
        grid ends too near λ₀."""
        demand = self.demand
        if demand is None or is_near_the_end(demand.thresholds, multiplier):
            return True
        since = self._shard.changes.since(demand.changes)
        return self._misses or self._patience.is_over(self._shard.count, since)

    def is_dated(self, age: float) -> bool:
        """Whether the demand, computed so many wall seconds ago, is to be of today's parameters."""
        demand = self.demand
        if demand is None:
            return True
        return age > self._patience.seconds and demand.changes != self._shard.changes

    def set_demand(self, demand: Demand, moved: float = math.inf) -> None:
        """Report this demand from now on.

        Args:
            demand: of all pages.
            moved: by what part it is another than the one before (`patience.movement`).
        """
        if self.demand is not None:
            learned = demand.changes.since(self.demand.changes).learned
            self._patience.note(self._shard.count, learned, moved)
        self.demand = demand
        self._misses = self.is_prepared = False

    def prepare(self, now: float, shards: int = 1) -> None:
        """Find what is ripe, which is most of the work for a report: its pages first, and how many
        count when this is called again. The demand must be known.

        Args:
            now: clock seconds.
            shards: of the process, which share the work of its reports.
        """
        if self._weighed is None:
            most = max(_WEIGHED // max(shards, 1), _LEAST_WEIGHED)
            self._weighed = self._shard.selector.weigh(now, self._horizon, most)
        elif self.demand is not None:
            self._ripe = self._counted(self._weighed, self.demand, now)
            self._weighed, self.is_prepared = None, True

    def report(self, now: float, multiplier: float, shards: int = 1) -> DemandCurve | None:
        """The shard's report, by the host limits of now; None before its demand is known.

        Args:
            now: clock seconds.
            multiplier: λ₀.
            shards: of the process, which share the work of its reports.
        """
        shard, demand = self._shard, self.demand
        if demand is None:
            return None
        while not self.is_prepared:
            self.prepare(now, shards)
        self.is_prepared = False
        rates = shard.crawl_rates()
        self._misses = demand.misses(rates)
        limited, unlimited = demand.limited(rates), demand.unlimited()
        by_tier, marginal = shard.notes.take_crawl_notes()
        crawls = sum(by_tier)
        self._reported_at += shard.notes.take_step()
        if shard.notes.take_interruption() or self._are_pauses_over(now):
            self._begin_run()
        answered, held, unused = shard.notes.take_fleet_notes()
        elapsed = now - self._reported_at
        self._reported_at = now
        point = int(np.searchsorted(demand.thresholds, multiplier, side="right")) - 1
        point = max(point, 0)
        share = 1.0 - limited[point] / unlimited[point] if unlimited[point] > 0 else 0.0
        return DemandCurve(
            shard=shard.number,
            instance=self._instance,
            reported_at=max(now, 0.0),
            pages=shard.count,
            thresholds=demand.thresholds.tolist(),
            demand=limited.tolist(),
            ripe=self._ripe,
            achieved_crawls_per_second=crawls / elapsed if elapsed > 0 else 0.0,
            host_limited_share=min(max(float(share), 0.0), 1.0),
            marginal_value=marginal,
            run=self._run,
            sequence=next(self._sequence),
            answered_crawls_per_second=answered / elapsed if elapsed > 0 else 0.0,
            held_crawls_per_second=held / elapsed if elapsed > 0 else 0.0,
            unused_crawls_per_second=unused / elapsed if elapsed > 0 else 0.0,
            groups=[GroupPages(name, count) for name, count in shard.groups.pages().items()],
            named=shard.groups.named_pages(),
            reasons=_reasons(by_tier, elapsed, shard.rules.picking.shares),
            classes=class_crawls(shard, elapsed),
        )

    def _are_pauses_over(self, now: float) -> bool:
        """Whether hosts with many of the pages may be crawled again since the last report."""
        hosts = self._shard.hosts
        since = hosts.ended_pauses(now).items()
        ended = [number for number, until in since if until > self._reported_at]
        return bool(hosts.rows["pages"][ended].sum() > MANY_PAGES * self._shard.count)

    def _counted(self, pages: Weighed, demand: Demand, now: float) -> list[float]:
        """How many of them are ripe under each threshold."""
        shard = self._shard
        ripe: list[float] = count_ripe(
            pages.priorities,
            shard.pages["host"][pages.rows],
            pages.pages_each,
            pages.hosts_each,
            shard.host_rows,
            shard.groups.room(self._horizon),
            demand.thresholds,
            now,
            self._horizon,
        ).tolist()
        return ripe
