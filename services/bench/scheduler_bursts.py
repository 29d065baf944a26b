"""The scheduler's core when signals burst, and when the bandwidth changes."""

from typing import Any, Final

import numpy as np

from services.bench.scheduled_pages import Population, make_filled_shard
from services.bench.scheduler_driver import CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, Driver

TICK_SECONDS: Final = 0.1
_PAGES_PER_HOST: Final = 50
_BURST: Final = 20.0
_BURST_SECONDS: Final = 10.0
_PHASES: Final = (
    ("constant", (1.0, 1.0), 10),
    ("one percent up and down", (1.01, 1.0), 20),
    ("twice", (2.0, 2.0), 40),
    ("half of that", (1.0, 1.0), 40),
    ("half", (0.5, 0.5), 40),
)
"""Name, factors of the bandwidth in odd and even seconds, seconds."""


def _driver(pages: int, seed: int) -> Driver:
    hosts = max(pages // _PAGES_PER_HOST, 1)
    population = Population(pages, CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, hosts, seed)
    driver = Driver(make_filled_shard(population)[0], seed)
    for _ in range(30):
        driver.tick(TICK_SECONDS)
    driver.forget()
    return driver


def run_signals(pages: int, seed: int) -> dict[str, Any]:
    """Twenty times as many signals for ten seconds.

    Returns:
        `slowest_tick_ms`: processor time of the longest tick, of `tick_ms` that it has;
        `dropped`: signals that were not taken; `unfilled`, `uncertain`: slots without a page, and
        picks below the guard.
    """
    driver = _driver(pages, seed)
    ticks = round(_BURST_SECONDS / TICK_SECONDS)
    uncertain = driver.shard.selector.uncertain_picks
    for _ in range(ticks):
        driver.tick(TICK_SECONDS, signals_per_second=_BURST * SIGNALS_PER_SECOND)
    during, slowest = driver.select_cpu + driver.event_cpu, driver.slowest
    for _ in range(ticks):
        driver.tick(TICK_SECONDS)
    return {
        "pages": pages,
        "signals_per_second": _BURST * SIGNALS_PER_SECOND,
        "tick_ms": TICK_SECONDS * 1e3,
        "slowest_tick_ms": round(slowest * 1e3, 2),
        "slowest_tick_after_ms": round(driver.slowest * 1e3, 2),
        "cpu_share": round(during / _BURST_SECONDS, 4),
        "dropped": driver.unknown,
        "unfilled": driver.empty,
        "uncertain": driver.shard.selector.uncertain_picks - uncertain,
    }


def run_bandwidth(pages: int, seed: int) -> list[dict[str, Any]]:
    """The bandwidth, and with it λ, goes up and down by a hundredth each second, and by factors.

    Returns:
        for each phase `cpu_share`, `slowest_tick_ms` and `p99_tick_ms` (processor time) of the
        `tick_ms` that a tick has, `unfilled` slots, `uncertain` picks and the `crawls` they are of.
    """
    driver = _driver(pages, seed)
    found = []
    for name, factors, seconds in _PHASES:
        driver.forget()
        selector = driver.shard.selector
        uncertain, sweeps = selector.uncertain_picks, selector.sweeps
        spent, last = [], 0.0
        for tick in range(round(seconds / TICK_SECONDS)):
            rate = CRAWLS_PER_SECOND * factors[int(tick * TICK_SECONDS) % 2]
            driver.tick(TICK_SECONDS, rate)
            now = driver.select_cpu + driver.event_cpu
            spent.append(now - last)
            last = now
        found.append(
            {
                "bandwidth": name,
                "seconds": seconds,
                "crawls": driver.crawls,
                "cpu_share": round(last / seconds, 4),
                "tick_ms": TICK_SECONDS * 1e3,
                "p99_tick_ms": round(float(np.quantile(spent, 0.99)) * 1e3, 2),
                "slowest_tick_ms": round(max(spent) * 1e3, 2),
                "unfilled": driver.empty,
                "uncertain": selector.uncertain_picks - uncertain,
                "sweeps": selector.sweeps - sweeps,
            }
        )
    return found
