"""A shard that grows while it runs: how long additions hold it up."""

import gc
from typing import Any, Final

import numpy as np

from services.bench.scheduled_pages import Population, make_filled_shard
from services.bench.scheduler_driver import CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, Driver
from services.bench.timing import thread_seconds
from services.scheduler.warm_up import warm_up
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate

_FIRST_PAGES: Final = 1_000_000
_LAST_PAGES: Final = 4_000_000
_BATCH: Final = 1_000
_PAGES_PER_HOST: Final = 50
_TICK_SECONDS: Final = 0.1


def run(first: int = _FIRST_PAGES, last: int = _LAST_PAGES, seed: int = 0) -> dict[str, Any]:
    """Add pages to a shard, a batch between two ticks, as `page-updates` messages do.

    Returns:
        processor time of the `longest_batch_ms` of additions and of the one in the middle,
        `longest_tick_ms` meanwhile, and `most_moved`: entries of the look-up that one batch moved.
    """
    warm_up()
    hosts = max(first // _PAGES_PER_HOST, 1)
    population = Population(first, CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, hosts, seed)
    driver = Driver(make_filled_shard(population)[0], seed)
    shard = driver.shard
    for _ in range(30):
        driver.tick(_TICK_SECONDS)
    driver.forget()
    gc.collect()
    spent, most_moved = [], 0
    for begin in range(first, last, _BATCH):
        new = [
            identify(f"https://h{number % hosts}.example/{number}")
            for number in range(begin, min(begin + _BATCH, last))
        ]
        update = PageUpdate("upsert", new[0].url, crawled_at=driver.now)
        moved, started = shard.lookup.moved, thread_seconds()
        for page in new:
            shard.upsert(page, update, driver.now)
        spent.append(thread_seconds() - started)
        most_moved = max(most_moved, shard.lookup.moved - moved)
        driver.tick(_TICK_SECONDS)
    return {
        "from_pages": first,
        "to_pages": shard.count,
        "batch": _BATCH,
        "longest_batch_ms": round(max(spent) * 1e3, 2),
        "median_batch_ms": round(float(np.median(spent)) * 1e3, 2),
        "most_moved": most_moved,
        "longest_tick_ms": round(driver.slowest * 1e3, 2),
    }
