"""Benchmark of the scheduler's core: exact selection without a look at every page.

`freshet bench scheduler --json`: 10M pages at 10,000 crawls/s and 5,000 signals/s, each tick of the
check compared with a look at all pages; then 1M, 50M and 100M pages, unless `--no-scale`. Times
are processor time of the one thread that does it all: signals and outcomes applied, pages picked.
"""

import gc
import os
import time
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import click
import numpy as np
import psutil
from numpy.typing import NDArray

from services.bench import (
    scheduler_bursts,
    scheduler_equals,
    scheduler_groups,
    scheduler_growth,
    scheduler_hosts,
    scheduler_learned,
    scheduler_shards,
    scheduler_shares,
)
from services.bench.processor_time import usage_of
from services.bench.scheduled_pages import Population, make_filled_shard
from services.bench.scheduler_driver import CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, Driver
from services.bench.timing import thread_seconds
from services.scheduler.picking.priority import Terms
from services.scheduler.picking.scanning import evaluate
from services.scheduler.state.rows import PAGE, RECORD
from services.scheduler.state.shard import Shard
from shared.terminal.output import show

_PAGES_PER_HOST: Final = 50
_CHECKED_TICKS: Final = 8
_SLICE: Final = 500_000
"""Pages in a slice of the look at all of them."""

_SCALE: Final = (1_000_000, 50_000_000, 100_000_000)
_BYTES_PER_PAGE: Final = 95
"""At most, while a shard is built; a size for which that is not free is left out."""

_PARTS: Final = (
    "runs",
    "hosts",
    "groups",
    "shares",
    "equals",
    "bursts",
    "multiplier",
    "growth",
    "learned",
    "shards",
)

_SAME: Final = 1e-9
"""Priorities that differ by less are the same."""


Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """Figures of one size and tick."""

    pages: int
    tick_seconds: float
    crawls: int
    checked_ticks: int
    mismatches: int
    """Picks that a look at all pages would not have made."""
    uncertified: int
    """Picks below the guard."""
    cpu_share: float
    """Of a core: signals and outcomes applied, pages picked."""
    select_share: float
    """Of a core: pages picked."""
    ns_per_crawl: float
    scan_ratio: float
    """Processor time of a look at all pages for each tick, and the best of them, over that of the
    calendar: pages placed and picked. Both come on top of the events that are applied."""
    slowest_tick_ms: float
    listed: int
    """Pages looked at in a tick beyond those that are picked."""
    bytes_per_page: float
    """What every look at a page needs; `PAGE`."""
    resident_bytes_per_page: float
    """All that a shard keeps of a page, what only events need included: `PAGE`, `RECORD`, calendar,
    ids, times of last signals, attempts. URLs and hosts are not pages."""
    resident_gb: float
    """Of the whole process at the end, hosts and the benchmark's own memory included."""
    peak_gb: float
    """... and at most, from the first page on."""
    build_seconds: float


def best_of_all(shard: Shard, now: float, count: int) -> tuple[NDArray[np.int64], Floats]:
    """The most urgent pages by a look at all of them, slice by slice: rows and priorities."""
    rows: list[NDArray[np.int64]] = []
    priorities: list[Floats] = []
    for begin in range(0, shard.used, _SLICE):
        part = np.arange(begin, min(begin + _SLICE, shard.used))
        found = np.empty(part.size)
        evaluate(shard.pages, shard.attempts.rows, part, now, Terms(False, 0.0, 0.0), found)
        best = np.argpartition(found, max(part.size - count, 0))[max(part.size - count, 0) :]
        rows.append(part[best])
        priorities.append(found[best])
    all_rows, all_priorities = np.concatenate(rows), np.concatenate(priorities)
    best = np.argpartition(all_priorities, all_rows.size - count)[all_rows.size - count :]
    return all_rows[best], all_priorities[best]


def check_tick(driver: Driver, seconds: float) -> tuple[int, float]:
    """One tick against a look at all pages: (picks that it would not make, its seconds)."""
    driver.events(seconds, SIGNALS_PER_SECOND)
    driver.now += seconds
    count = round(CRAWLS_PER_SECOND * seconds)
    slots = driver.now - seconds + np.arange(1, count + 1, dtype=np.float64) / CRAWLS_PER_SECOND
    started = thread_seconds()
    rows, priorities = best_of_all(driver.shard, float(slots[0]), count)
    elapsed = thread_seconds() - started
    picks = driver.pick(slots, CRAWLS_PER_SECOND)
    picked = picks[picks["row"] >= 0]
    least = priorities.min()
    others = ~np.isin(picked["row"], rows)
    wrong = int((picked["priority"][others] < least * (1 - _SAME)).sum()) + count - picked.size
    wrong += picked.size - np.unique(picked["row"]).size
    return wrong, elapsed


def run_size(pages: int, tick_seconds: float, sim_seconds: float, seed: int) -> Run:
    """Measure one size at one tick."""
    gc.collect()
    _forget_peak()
    hosts = max(pages // _PAGES_PER_HOST, 1)
    population = Population(pages, CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, hosts, seed)
    shard, _ = make_filled_shard(population)
    return measure(Driver(shard, seed), tick_seconds, sim_seconds)


def measure(driver: Driver, tick_seconds: float, sim_seconds: float) -> Run:
    """Let a shard settle, compare some ticks with a look at all pages, and time the others."""
    shard = driver.shard
    started = thread_seconds()
    driver.tick(tick_seconds)
    built = thread_seconds() - started
    for _ in range(round(max(3.0, 10 * tick_seconds) / tick_seconds)):
        driver.tick(tick_seconds)
    checks = [check_tick(driver, tick_seconds) for _ in range(_CHECKED_TICKS)]
    uncertain = shard.selector.uncertain_picks
    driver.forget()
    for _ in range(round(sim_seconds / tick_seconds)):
        driver.tick(tick_seconds)
    cpu = driver.select_cpu + driver.event_cpu
    scan = sorted(elapsed for _, elapsed in checks)[len(checks) // 2] * sim_seconds / tick_seconds
    used = shard.used
    others = shard.selector.calendar_bytes + shard.lookup.nbytes + shard.signal_times.nbytes
    others += shard.attempts.rows.nbytes
    return Run(
        pages=used,
        tick_seconds=tick_seconds,
        crawls=driver.crawls,
        checked_ticks=len(checks),
        mismatches=sum(wrong for wrong, _ in checks),
        uncertified=shard.selector.uncertain_picks - uncertain + driver.empty,
        cpu_share=round(cpu / sim_seconds, 5),
        select_share=round(driver.select_cpu / sim_seconds, 5),
        ns_per_crawl=round(cpu / max(driver.crawls, 1) * 1e9, 1),
        scan_ratio=round(scan / (driver.select_cpu + driver.placing_cpu), 1),
        slowest_tick_ms=round(driver.slowest * 1e3, 2),
        listed=shard.selector.candidates,
        bytes_per_page=PAGE.itemsize,
        resident_bytes_per_page=round(PAGE.itemsize + RECORD.itemsize + others / used, 1),
        resident_gb=round(usage_of(os.getpid()).resident_bytes / 1e9, 2),
        peak_gb=round(_peak_bytes() / 1e9, 2),
        build_seconds=round(built, 2),
    )


def _fits(pages: int) -> bool:
    return pages * _BYTES_PER_PAGE < psutil.virtual_memory().available


def _forget_peak() -> None:
    """Let `_peak_bytes` begin anew: the process may have been larger before."""
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")


def _peak_bytes() -> int:
    with open("/proc/self/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024


@click.command("scheduler")
@click.option("--pages", default=10_000_000, show_default=True, type=click.IntRange(min=20_000))
@click.option(
    "--scale/--no-scale", default=True, show_default=True, help="1M, 50M and 100M pages as well."
)
@click.option("--seconds", default=20.0, show_default=True, help="Simulated, for each run.")
@click.option(
    "--shards", default=64, show_default=True, type=click.IntRange(min=2),
    help="Of one process, beside a single one.",
)  # fmt: skip
@click.option("--only", multiple=True, help=f"Of {', '.join(_PARTS)}.")
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(  # noqa: D103 - the help is the module's
    pages: int,
    scale: bool,
    seconds: float,
    shards: int,
    only: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    started = time.perf_counter()
    answer: dict[str, Any] = {}
    wanted = set(only or _PARTS)
    if "runs" in wanted:
        sizes = [(pages, 1.0), (pages, 0.1)]
        if scale:
            sizes += [(size, 1.0) for size in _SCALE]
        fitting = [(size, tick) for size, tick in sizes if _fits(size)]
        answer["runs"] = [asdict(run_size(size, tick, seconds, seed)) for size, tick in fitting]
        answer["too_large_for_the_memory"] = [size for size, _ in sizes if not _fits(size)]
    if "hosts" in wanted:
        answer["hosts"] = scheduler_hosts.run(pages, seed)
    if "groups" in wanted:
        answer["groups"] = scheduler_groups.run(seed)
    if "shares" in wanted:
        answer["shares"] = scheduler_shares.run(seed)
    if "equals" in wanted:
        answer["equals"] = scheduler_equals.run(seed=seed)
    if "bursts" in wanted:
        answer["bursts"] = scheduler_bursts.run_signals(pages, seed)
    if "multiplier" in wanted:
        answer["multiplier"] = scheduler_bursts.run_bandwidth(pages, seed)
    if "growth" in wanted:
        answer["growth"] = scheduler_growth.run(seed=seed)
    if "learned" in wanted:
        answer["learned"] = scheduler_learned.run(pages, seed)
    if "shards" in wanted:
        answer["shards"] = scheduler_shards.run(pages, shards, seconds, seed)
    answer["seconds"] = round(time.perf_counter() - started, 1)
    show(answer, as_json=as_json)


command.help = (__doc__ or "").split("\n\n")[0]
