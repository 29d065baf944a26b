"""What a shard would crawl under each threshold, told to the coordinator."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.hosts import capacity
from services.scheduler.pages import ACTIVE, Rows
from services.scheduler.priority import SECONDS_PER_DAY
from services.scheduler.shard import Shard
from shared.contracts.messages import DemandCurve
from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import change_rate_scalar
from shared.policy.kernels.threshold import threshold_staleness_scalar

POINTS: Final = 48
POINTS_PER_DECADE: Final = 8
"""Thresholds are 10^(k/8) in every shard, so that curves add point by point."""

_ABOVE_MULTIPLIER: Final = 24
"""Points above λ₀ where the grid has to be moved down to reach it."""

_NEAR_THE_END: Final = 12
"""With fewer points than this below λ₀ the grid is moved."""

_OLDEST_DAYS: Final = 1e4
"""Top of the grid under the uniform policy, whose values are ages."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Pages drawn from a shard, copied so that another thread may work on them."""

    pages: Rows
    hosts: Rows
    scale: float
    """Pages of the shard for each in the sample."""
    uniform: bool
    version: int
    """The shard's `parameter_changes` when it was drawn."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The long-run crawl rate of a shard under each threshold."""

    thresholds: NDArray[np.float64]
    limited: NDArray[np.float64]
    """Crawls per second, host limits included."""
    unlimited: NDArray[np.float64]
    version: int

    def limited_share(self, multiplier: float) -> float:
        """Share of the demand at λ₀ that host limits hold back."""
        index = int(np.searchsorted(self.thresholds, multiplier, side="right")) - 1
        index = min(max(index, 0), self.thresholds.size - 1)
        wanted = self.unlimited[index]
        share = 1.0 - self.limited[index] / wanted if wanted > 0 else 0.0
        return min(max(float(share), 0.0), 1.0)


def draw_sample(shard: Shard, most: int, seed: int = 0) -> Sample:
    """Copy the active pages of a shard, or as many of them as asked for, drawn at random."""
    active = np.flatnonzero(shard.pages["status"][: shard.used] == ACTIVE)
    scale = 1.0
    if active.size > most:
        scale = active.size / most
        active = np.sort(np.random.default_rng(seed).choice(active, most, replace=False))
    return Sample(
        pages=shard.pages[active],
        hosts=shard.host_rows[: shard.host_count].copy(),
        scale=scale,
        uniform=shard.rules.selection.uniform,
        version=shard.parameter_changes,
    )


@compiled
def _highest_value(pages: Rows) -> float:
    highest = 0.0
    for row in range(pages.size):
        rate = change_rate_scalar(pages[row].alpha, pages[row].kappa, pages[row].gamma)
        if rate > 0.0:
            highest = max(highest, pages[row].importance / rate)
    return highest


@compiled
def _crawl_rates(
    pages: Rows,
    hosts: Rows,
    scale: float,
    uniform: bool,
    thresholds: NDArray[np.float64],
    limited: NDArray[np.float64],
    unlimited: NDArray[np.float64],
) -> None:
    """Crawls per day under each threshold, by page, cut at each host's limit."""
    of_host = np.empty(hosts.size)
    for point in range(thresholds.size):
        threshold = thresholds[point]
        of_host[:] = 0.0
        for row in range(pages.size):
            page = pages[row]
            if uniform:
                rate = 1.0 / threshold
            elif page.importance > 0.0:
                target = threshold / page.importance
                _, days = threshold_staleness_scalar(page.alpha, page.kappa, page.gamma, target)
                rate = 1.0 / days if days > 0.0 else 0.0
            else:
                rate = 0.0
            of_host[page.host] += max(rate, SECONDS_PER_DAY / page.max_age)
        limited[point] = unlimited[point] = 0.0
        for host in range(hosts.size):
            wanted = of_host[host] * scale
            unlimited[point] += wanted
            limited[point] += min(wanted, hosts[host].rate * SECONDS_PER_DAY)


def grid(highest: float, multiplier: float) -> NDArray[np.float64]:
    """Thresholds: six decades below the highest crawl value there is, or around λ₀."""
    top = math.ceil(POINTS_PER_DECADE * math.log10(highest)) if highest > 0 else 0
    if multiplier > 0:
        above = math.ceil(POINTS_PER_DECADE * math.log10(multiplier)) + _ABOVE_MULTIPLIER
        if above - _ABOVE_MULTIPLIER < top - POINTS + 1 + _NEAR_THE_END:
            top = above
    steps = np.arange(top - POINTS + 1, top + 1)
    return np.asarray(10.0 ** (steps / POINTS_PER_DECADE), dtype=np.float64)


def demand_of(sample: Sample, multiplier: float) -> Demand:
    """The demand curve of a sampled shard; takes a microsecond a page and threshold at most."""
    highest = _OLDEST_DAYS if sample.uniform else float(_highest_value(sample.pages))
    thresholds = grid(highest, multiplier)
    limited, unlimited = np.empty(POINTS), np.empty(POINTS)
    _crawl_rates(
        sample.pages, sample.hosts, sample.scale, sample.uniform, thresholds, limited, unlimited
    )
    return Demand(
        thresholds, limited / SECONDS_PER_DAY, unlimited / SECONDS_PER_DAY, sample.version
    )


@compiled
def count_ripe(
    priorities: NDArray[np.float64],
    pages: Rows,
    hosts: Rows,
    thresholds: NDArray[np.float64],
    now: float,
    horizon: float,
) -> NDArray[np.int64]:
    """Pages of a priority at or above each threshold, of each host no more than it can take
    within `horizon` seconds from now.

    Without that bound, the many ripe pages of a host that is blocked or slow would draw a budget
    that its shard can only spend on pages worth less than others'.
    """
    counts = np.zeros(thresholds.size + 1, np.int64)
    rooms = np.empty(hosts.size)
    for row in range(hosts.size):
        rooms[row] = capacity(hosts[row], now, now + horizon)
    ripe_rows = np.flatnonzero(priorities >= thresholds[0])
    for index in np.argsort(-priorities[ripe_rows]):
        row = ripe_rows[index]
        host = pages[row].host
        if rooms[host] >= 1.0:
            rooms[host] -= 1.0
            counts[np.searchsorted(thresholds, priorities[row], side="right")] += 1
    ripe = np.empty(thresholds.size, np.int64)
    above = 0
    for point in range(thresholds.size - 1, -1, -1):
        above += counts[point + 1]
        ripe[point] = above
    return ripe


class DemandReporter:
    """Makes the reports of one shard."""

    def __init__(self, shard: Shard, instance: str, horizon: float) -> None:
        """Report a shard.

        Args:
            shard: the shard.
            instance: name of this process.
            horizon: clock seconds in which the ripe pages are to be crawled.
        """
        self._shard = shard
        self._instance = instance
        self._horizon = horizon
        self._ripe: list[float] = []
        self._reported_at = shard.filled_until
        self.demand: Demand | None = None

    def is_stale(self, multiplier: float) -> bool:
        """Whether the demand is of markedly other parameters, or its grid ends too near λ₀."""
        if self.demand is None or 0.0 < multiplier < self.demand.thresholds[_NEAR_THE_END]:
            return True
        changes = self._shard.parameter_changes - self.demand.version
        return changes > 0.01 * self._shard.count

    def set_demand(self, demand: Demand) -> None:
        """Report this demand from now on."""
        self.demand = demand

    def report(self, now: float, multiplier: float) -> DemandCurve | None:
        """The shard's report; None before its demand is known."""
        shard, demand = self._shard, self.demand
        if demand is None:
            return None
        self._refresh_ripe(demand, now)
        crawls, marginal = shard.take_crawl_notes()
        elapsed = now - self._reported_at
        self._reported_at = now
        return DemandCurve(
            shard=shard.number,
            instance=self._instance,
            reported_at=max(now, 0.0),
            pages=shard.count,
            thresholds=demand.thresholds.tolist(),
            demand=demand.limited.tolist(),
            ripe=self._ripe,
            achieved_crawls_per_second=crawls / elapsed if elapsed > 0 else 0.0,
            host_limited_share=demand.limited_share(multiplier),
            marginal_value=marginal,
        )

    def _refresh_ripe(self, demand: Demand, now: float) -> None:
        shard = self._shard
        hosts = shard.host_rows[: shard.host_count]
        priorities = shard.selector.weigh_all(now)
        ripe = count_ripe(priorities, shard.pages, hosts, demand.thresholds, now, self._horizon)
        self._ripe = ripe.astype(float).tolist()
