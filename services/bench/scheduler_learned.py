"""What is learned of hosts reaches their pages: how long that keeps the shards' thread at once."""

from typing import Final

import numpy as np

from services.bench.scheduled_pages import ORIGIN, Population, make_filled_shard
from services.bench.scheduler_driver import CRAWLS_PER_SECOND, SIGNALS_PER_SECOND
from services.bench.timing import thread_seconds
from services.scheduler.flow.reader import PAGES_AT_ONCE
from services.scheduler.state.shard import Shard
from services.scheduler.warm_up import warm_up
from shared.contracts.messages import HostParameters
from shared.policy.estimation.bursts import AGE_BINS
from shared.store.history import SOURCES

_SLICE: Final = 50_000
_USUAL: Final = 300
"""Pages of a host."""

_FACTORS: Final = (1.0, 1.2, 1.5)
"""What is learned, in times of before; the first one brings everything into the caches."""


def run(pages: int, seed: int = 0) -> dict[str, dict[str, float]]:
    """All pages of a shard have the rates of their hosts, and those of all hosts change.

    Args:
        pages: of one host; and of hosts of 300 each.
        seed: of the random pages.

    Returns:
        for each, `longest_step_ms` of the thread, and `whole_ms`, processor time.
    """
    warm_up()
    usual = max(pages // _USUAL, 1)
    return {"one host": _measured(pages, 1, seed), "usual hosts": _measured(pages, usual, seed)}


def _measured(pages: int, hosts: int, seed: int) -> dict[str, float]:
    population = Population(pages, CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, hosts, seed)
    shard, _ = make_filled_shard(population)
    shard.selector.prepare(ORIGIN)
    _have_rates_of_hosts(shard)
    steps: list[float] = []
    for factor in _FACTORS:
        shard.refreshes.take([_told(number, factor) for number in range(hosts)])
        steps.clear()
        is_left = True
        while is_left:
            started = thread_seconds()
            is_left = shard.refreshes.go_on(PAGES_AT_ONCE)
            steps.append(thread_seconds() - started)
    return {
        "longest_step_ms": round(max(steps) * 1e3, 2),
        "whole_ms": round(sum(steps) * 1e3, 1),
    }


def _have_rates_of_hosts(shard: Shard) -> None:
    """No page has a crawl record: nothing is known of it but of its host."""
    for first in range(0, shard.used, _SLICE):
        rows = np.arange(first, min(first + _SLICE, shard.used))
        unknown, gamma = np.full(rows.size, np.nan), shard.pages["gamma"][rows]
        ids = shard.page_ids_of(rows)
        shard.parameters(ids, unknown, unknown, gamma.astype(np.float64))


def _told(number: int, factor: float) -> HostParameters:
    rate, evidence = 0.1 * factor, [0.5] * SOURCES
    return HostParameters(
        f"h{number}.example", rate, 0.5, [], evidence, [1.0] * AGE_BINS, ORIGIN + factor
    )
