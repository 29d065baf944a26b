"""A host with a million equally urgent pages, against one whose pages differ."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.bench.scheduled_pages import ORIGIN
from services.bench.timing import thread_seconds
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.hosts import list_pages
from services.scheduler.state.rows import ACTIVE, clear
from services.scheduler.state.rules import PickingRules, ShardRules
from services.scheduler.state.shard import Shard
from services.scheduler.warm_up import warm_up

_PAGES: Final = 1_000_000
_TICKS: Final = 400
_TICK_SECONDS: Final = 0.1
_SLOTS: Final = 100
"""In a tick."""

_CRAWLS_PER_SECOND: Final = 250.0
"""That the host takes: its pen is used up several times."""


def run(pages: int = _PAGES, seed: int = 0) -> dict[str, Any]:
    """New pages of one host that is at its limit: ticks, and what its pen has to hold.

    Returns:
        processor time of the longest tick with pages that are equal and with pages that differ
        (the median of the three longest, after the first one, which looks at all pages), the
        `ratio` of the two, the `total_ratio` of all ticks, and how many pages each pen held at
        most.
    """
    warm_up()
    equal = _measure(_make_shard(np.ones(pages)))
    importance = np.random.default_rng(seed).lognormal(0.0, 1.0, pages)
    varied = _measure(_make_shard(importance))
    return {
        "pages": pages,
        "longest_tick_ms": {"equal": round(equal[0] * 1e3, 2), "varied": round(varied[0] * 1e3, 2)},
        "ratio": round(equal[0] / varied[0], 3),
        "total_ratio": round(equal[1] / varied[1], 3),
        "most_penned": {"equal": equal[2], "varied": varied[2]},
        "crawls": {"equal": equal[3], "varied": varied[3]},
    }


def _make_shard(importance: NDArray[np.float64]) -> Shard:
    """New pages of one host."""
    rules = ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, np.inf, _CRAWLS_PER_SECOND)
    count = importance.size
    shard = make_shard(0, rules, count)
    pages, records = shard.pages[:count], shard.records[:count]
    clear(pages, records)
    pages["host"] = shard.hosts.intern("large.example")
    pages["importance"] = importance
    pages["alpha"] = 0.01
    pages["status"] = ACTIVE
    rows = np.arange(count, dtype=np.int32)
    list_pages(shard.pages, shard.records, shard.hosts.rows, rows)
    shard.lookup.ids[:count] = rows + 1
    shard.used = count
    shard.lookup.index(count)
    return shard


def _measure(shard: Shard) -> tuple[float, float, int, int]:
    """(seconds of the longest tick, of all, pages penned at most, crawls)."""
    spent, most, crawls = [], 0, 0
    for tick in range(_TICKS):
        begin = ORIGIN + tick * _TICK_SECONDS
        slots = begin + np.arange(1, _SLOTS + 1, dtype=np.float64) * (_TICK_SECONDS / _SLOTS)
        started = thread_seconds()
        picks = shard.selector.select(slots, _SLOTS / _TICK_SECONDS, 0.0)
        spent.append(thread_seconds() - started)
        most = max(most, int(shard.host_rows[0]["penned"]))
        crawls += int((picks["row"] >= 0).sum())
    return float(np.median(np.sort(spent[1:])[-3:])), sum(spent[1:]), most, crawls
