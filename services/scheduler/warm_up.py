"""Compiles everything before the worker says that it is there, instead of at the first tick."""

import numpy as np

from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.explain import page_state, shard_state
from services.scheduler.flow.recovery import restore
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state import events
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlRequest, HostParameters, PageUpdate
from shared.policy.kernels.rate_tables import make_tables
from shared.rules.page_events import UNCHANGED
from shared.store.history import SOURCES


def warm_up() -> None:
    """Take a small shard through all that can happen; some seconds once, then cached on disk."""
    shard = make_shard(0, ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0))
    pages = [identify(f"http://warm.example/{number}") for number in range(3)]
    for page in pages:
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=1.0), 0.0)
    ids = np.array([page.page_id for page in pages], np.int64)
    rates = np.full(ids.size, 0.1)
    times = np.full(ids.size, 10.0)
    shard.parameters(ids, rates, rates, rates)
    shard.selector.select(np.array([1.0, 2.0]), 1.0, 0.0)
    shard.outcomes(
        events.Outcomes(
            ids,
            times,
            np.full(ids.size, UNCHANGED, np.int8),
            np.zeros(ids.size, np.int64),
            np.zeros(ids.size, np.uint32),
        )
    )
    first = pages[0]
    shard.host_parameters([HostParameters(first.host, 0.1, 0.5, [], [0.3] * 4, [1.0] * 6, 0.0)])
    shard.signals(ids, times + 1.0, ["warm"] * ids.size)
    request = CrawlRequest("0-0-0", first.page_id, first.url, first.host, 1, 2, 0, 0, "new")
    restore(shard, [request])
    shard.hosts.learned.weighted(shard.pages["host"][:1], np.zeros((1, SOURCES), np.uint16))
    shard.limit_host(first.host, 2.0, None, 1.0)
    shard.selector.select(np.array([20.0]), 1.0, 1e9)
    reporter = DemandReporter(shard, "warm-up", 10.0)
    make_tables(odds=2, kappas=2)
    reporter.set_demand(demand_of(shard, 1.0))
    reporter.report(21.0, 1.0)
    shard_state(shard, 1.0)
    page_state(shard, first, 21.0, 1.0)
    for page in pages:
        shard.remove(page.page_id, 30.0)
