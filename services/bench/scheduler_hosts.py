"""The scheduler's core with host limits: they hold in any window, and cost little freshness."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.bench.convex_solver import best_objective
from services.bench.scheduled_pages import ORIGIN, Population, make_filled_shard
from services.bench.scheduler_driver import CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, Driver
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.hosts import DEPTH
from services.scheduler.state.shard import Shard
from shared.contracts.request_ids import microseconds
from shared.policy.compiled import compiled
from shared.policy.model import Column, PageParameters
from shared.rules.page_events import UNCHANGED
from shared.units import SECONDS_PER_DAY

_HOSTS: Final = 200_000
_LIMITED: Final = 0.05
_OF_THEIR_SHARE: Final = 0.3
"""A limited host takes so much of an equal part of the budget."""

_SECONDS: Final = 300
_SMALL_PAGES: Final = 2_000
_SMALL_HOSTS: Final = 100
_SMALL_LIMITED: Final = 0.2
_SMALL_RATE: Final = 20.0
_ROUNDS: Final = 120
"""Times that a page of the small instance is crawled, on average."""

_UNLIMITED: Final = 1e9


@compiled
def count_above_limit(
    hosts: NDArray[np.int32], times: Column, rates: Column, tolerance: float
) -> int:
    """Hosts that were crawled more than `DEPTH` + rate·w times in some window of w seconds.

    Args:
        hosts: of each crawl, in the order of their times.
        times: seconds, rising.
        rates: limit of each host, per second.
        tolerance: of a crawl.
    """
    tokens = np.full(rates.size, DEPTH)
    filled = np.full(rates.size, times[0])
    above = np.zeros(rates.size, np.bool_)
    for crawl in range(times.size):
        host = hosts[crawl]
        passed = times[crawl] - filled[host]
        tokens[host] = min(DEPTH, tokens[host] + passed * rates[host]) - 1.0
        filled[host] = times[crawl]
        if tokens[host] < -tolerance:
            above[host] = True
    return int(above.sum())


def run(pages: int, seed: int) -> dict[str, Any]:
    """Limits at scale, and the price of limits against the convex optimum.

    Returns:
        `at_scale`: `over_limit_hosts`, `limited_hosts_at_their_limit` and their crawls as a share
        of what their limits allow, `cpu_share` at ticks of a second; `optimum`: `shortfall` of the
        freshness against the upper bound of a general solver with the same limits.
    """
    return {"at_scale": _run_at_scale(pages, seed), "optimum": run_against_optimum(seed)}


def _run_at_scale(pages: int, seed: int) -> dict[str, Any]:
    hosts = min(_HOSTS, pages // 2)
    population = Population(pages, CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, hosts, seed)
    random = np.random.default_rng(seed)
    limited = random.random(hosts) < _LIMITED
    rates = np.where(limited, _OF_THEIR_SHARE * CRAWLS_PER_SECOND / hosts, _UNLIMITED)
    shard, multiplier = make_filled_shard(population, rates)
    # No more than a token saved up, which would count for more than the limits.
    shard.hosts.rows["tokens"][:hosts] = random.random(hosts)
    shard.hosts.rows["filled_at"][:hosts] = ORIGIN
    driver = Driver(shard, seed)
    for _ in range(5):
        driver.tick(1.0)
    driver.forget()
    before = shard.selector.uncertain_picks
    crawled: list[NDArray[np.int32]] = []
    times: list[NDArray[np.float64]] = []
    for _ in range(_SECONDS):
        picks = driver.tick(1.0)
        picks = picks[picks["row"] >= 0]
        crawled.append(shard.pages["host"][picks["row"]])
        times.append(picks["time"])
    all_hosts, all_times = np.concatenate(crawled), np.concatenate(times)
    per_host = np.bincount(all_hosts, minlength=hosts)
    held = shard.host_rows["held_back"][:hosts] > multiplier
    return {
        "pages": pages,
        "hosts": hosts,
        "limited_hosts": int(limited.sum()),
        "hosts_at_their_limit": int(held.sum()),
        "used_of_limits": round(per_host[limited].sum() / (rates[limited].sum() * _SECONDS), 4),
        "over_limit_hosts": count_above_limit(all_hosts, all_times, rates, 1e-6),
        "crawls": int(all_hosts.size),
        "unfilled": driver.empty,
        "uncertain": shard.selector.uncertain_picks - before,
        "cpu_share": round((driver.select_cpu + driver.event_cpu) / _SECONDS, 4),
        "slowest_tick_ms": round(driver.slowest * 1e3, 1),
    }


def run_against_optimum(seed: int) -> dict[str, Any]:
    """Freshness of the picks over a long time against the convex optimum with the same limits."""
    hosts = _SMALL_HOSTS
    population = Population(_SMALL_PAGES, _SMALL_RATE, 0.0, hosts, seed)
    random = np.random.default_rng(seed)
    limited = random.random(hosts) < _SMALL_LIMITED
    rates = np.where(limited, _OF_THEIR_SHARE * _SMALL_RATE / hosts, _UNLIMITED)
    shard, _ = make_filled_shard(population, rates)
    pages = shard.pages[: shard.used]
    pages["alpha"] += pages["gamma"] * -np.expm1(-pages["kappa"])
    pages["gamma"] = pages["kappa"] = pages["signals"] = 0.0
    achieved = _freshness_of_picks(shard)
    params = PageParameters.from_rates(
        pages["importance"].astype(float), pages["alpha"].astype(float), 0.0, 0.0
    )
    caps = np.where(limited, rates * SECONDS_PER_DAY, np.inf)
    lower, upper = best_objective(
        params, pages["host"].astype(np.int32), caps, _SMALL_RATE * SECONDS_PER_DAY
    )
    total = float(params.importance.sum())
    return {
        "pages": _SMALL_PAGES,
        "hosts": hosts,
        "limited_hosts": int(limited.sum()),
        "freshness": round(achieved / total, 6),
        "optimum": [round(lower / total, 6), round(upper / total, 6)],
        "shortfall": round(1.0 - achieved / upper, 6),
    }


def _freshness_of_picks(shard: Shard) -> float:
    """Time average of Σμ·P(fresh), in the second half of a simulation without any delay."""
    pages = shard.pages[: shard.used]
    interval = shard.used / _SMALL_RATE
    begin, end = ORIGIN + interval * _ROUNDS / 2, ORIGIN + interval * _ROUNDS
    decay = pages["alpha"].astype(float) / SECONDS_PER_DAY
    integral = np.zeros(shard.used)
    now = ORIGIN
    batch = 4
    while now < end:
        slots = now + np.arange(1, batch + 1, dtype=np.float64) / _SMALL_RATE
        last = pages["last_crawled_at"].copy()
        picks = shard.selector.select(slots, _SMALL_RATE, 0.0)
        picks = picks[picks["row"] >= 0]
        rows, times = picks["row"], picks["time"]
        integral[rows] += _fresh_time(last[rows], np.minimum(times, end), decay[rows], begin)
        shard.outcomes(
            Outcomes(
                shard.page_ids_of(rows),
                times,
                np.full(rows.size, UNCHANGED, np.int8),
                microseconds(times),
                np.zeros(rows.size, np.uint32),
            )
        )
        now = float(slots[-1])
    integral += _fresh_time(pages["last_crawled_at"], np.full(shard.used, end), decay, begin)
    return float(pages["importance"] @ integral) / (end - begin)


def _fresh_time(last: Column, until: Column, decay: Column, begin: float) -> Column:
    """∫ e^{−Δ(t − last)} dt from the later of `last` and `begin` on."""
    start = np.maximum(last, begin)
    until = np.maximum(until, start)
    return np.asarray((np.exp(-decay * (start - last)) - np.exp(-decay * (until - last))) / decay)
