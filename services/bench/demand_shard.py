"""Benchmark of the demand of a large shard as its scheduler computes it, beside its ticks."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from services.bench.random_pages import random_population
from services.scheduler.demand.kept_tables import rate_tables
from services.scheduler.demand.tally import Demand, Tally, demand_of
from services.scheduler.flow.reporting import Reporting
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rows import ACTIVE, clear, empty_rows
from services.scheduler.state.rules import PickingRules, ShardRules
from services.scheduler.state.shard import Shard
from shared.units import SECONDS_PER_DAY

_HOSTS = 200_000
_CHECKED = 100_000
_SMALL = 20_000
_ABOVE = 100
"""The error is that of thresholds which so many pages may reach."""


def run(pages: int, seed: int = 0) -> dict[str, Any]:
    """The demand of one shard with a fifth of its pages signalled and a tenth of hosts limited.

    ``refresh_cpu_seconds`` is a pass over all pages, ``slice_milliseconds`` the longest time that
    it holds up the shards' thread.  The scheduler's own loop then runs: a change of 2 % of the
    pages a moment after a pass has begun, the worst one, shows after ``seconds_until_fresh``, and
    ``core_share`` is taken meanwhile.  ``small_shard_ns_per_page`` is a pass over a shard of 20,000
    pages, as installations with few pages have them.  ``max_relative_error`` is that of the tables
    on a shard of at most 100,000 pages, at thresholds that 100 pages or more may reach, with host
    limits.
    """
    rate_tables()
    shard = random_shard(pages, seed)
    demand, _, _ = _timed_pass(shard, demand_of(shard, 0.0, few_pages=0))
    demand, seconds, longest = _timed_pass(shard, demand)
    fresh, share = asyncio.run(_follow(shard))
    return {
        "shard_pages": pages,
        "hosts_apart": int(demand.hosts.size),
        "refresh_cpu_seconds": seconds,
        "slice_milliseconds": longest * 1e3,
        "seconds_until_fresh": fresh,
        "core_share": share,
        "small_shard_ns_per_page": _small(seed),
        "max_relative_error": _error(random_shard(min(pages, _CHECKED), seed + 1)),
    }


def random_shard(pages: int, seed: int) -> Shard:
    """A shard of random pages that has read all there is to read."""
    rules = ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0)
    shard = make_shard(0, rules)
    params, hosts, caps, _ = random_population(pages, min(_HOSTS, max(pages // 20, 1)), seed)
    shard.pages, shard.records = empty_rows(pages)
    clear(shard.pages, shard.records)
    for name in ("importance", "alpha", "kappa", "gamma"):
        shard.pages[name] = getattr(params, name)
    shard.pages["host"] = hosts
    shard.pages["status"] = ACTIVE
    shard.used = pages
    for number in range(caps.size):
        shard.hosts.intern(f"h{number}.example")
    rates = np.where(np.isfinite(caps), caps / SECONDS_PER_DAY, 1.0)
    shard.hosts.rows["rate"][: caps.size] = rates
    shard.is_caught_up = True
    return shard


def _small(seed: int) -> float:
    shard = random_shard(_SMALL, seed)
    _, seconds, _ = _timed_pass(shard, demand_of(shard, 0.0))
    return seconds / _SMALL * 1e9


def _timed_pass(shard: Shard, before: Demand) -> tuple[Demand, float, float]:
    """(demand, seconds of a core, longest copy in seconds)."""
    tally = Tally(shard, 0.0, before)
    started, longest = time.thread_time(), 0.0
    while True:
        copied = time.thread_time()
        rows = tally.copy()
        longest = max(longest, time.thread_time() - copied)
        if rows is None:
            return tally.finish(), time.thread_time() - started, longest
        tally.add(rows)


async def _follow(shard: Shard) -> tuple[float, float]:
    """(seconds until a change shows, share of a core) of the scheduler's own loop."""
    thread, stopping = ShardThread(), asyncio.Event()
    reporting = Reporting(
        cast("Any", SimpleNamespace(report_seconds=0.1, instance="bench")),
        cast("Any", SimpleNamespace(now=lambda: 0.0, span=lambda seconds: seconds)),
        cast("Any", SimpleNamespace(send=_to_nobody)),
        thread,
        cast("Any", SimpleNamespace(shards={0: shard})),
        cast("Any", SimpleNamespace(at=lambda _: None)),
    )
    loop = asyncio.create_task(reporting.run_demand(stopping))
    try:
        await _until(reporting, shard, 0)
        shard.changes.told += shard.used // 50
        await asyncio.sleep(1.0)
        shard.changes.told += shard.used // 50
        changes = shard.changes.told
        started, used = time.perf_counter(), time.process_time()
        await _until(reporting, shard, changes)
        seconds = time.perf_counter() - started
        return seconds, (time.process_time() - used) / seconds
    finally:
        stopping.set()
        await loop
        thread.close()


async def _to_nobody(*_record: object, **_where: object) -> None:
    """Takes the reports."""


async def _until(reporting: Reporting, shard: Shard, told: int) -> None:
    while (demand := reporting.demand_of(shard)) is None or demand.changes.told < told:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.05)


def _error(shard: Shard) -> float:
    rates = shard.crawl_rates()
    exact = demand_of(shard, 0.0, few_pages=shard.used)
    found = demand_of(shard, 0.0, few_pages=0)
    pages = shard.pages
    highest = pages["importance"] / (pages["alpha"] - pages["gamma"] * np.expm1(-pages["kappa"]))
    reached = np.array([(highest > point).sum() for point in exact.thresholds]) >= _ABOVE
    wanted = exact.limited(rates)[reached]
    return float(np.abs(found.limited(rates)[reached] / wanted - 1.0).max())
