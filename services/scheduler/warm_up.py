"""Compiles everything before the worker says that it is there, instead of at the first tick."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.explain import page_state, shard_state
from services.scheduler.flow.loading import build_shard
from services.scheduler.flow.recovery import restore, settle_tokens
from services.scheduler.flow.requests import crawls_of
from services.scheduler.picking.board import PENNED
from services.scheduler.picking.calendar import make_shard
from services.scheduler.picking.class_turns import SPARE_CANDIDATES
from services.scheduler.picking.scanning import keep_best
from services.scheduler.picking.work_share import next_turn
from services.scheduler.state.attempts import load_attempts
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.erasing import erase_host
from services.scheduler.state.groups import CrawlRates
from services.scheduler.state.rules import ClassRules, PickingRules, ShardRules
from services.scheduler.state.shard import Shard
from shared.contracts.identity import PageIdentity, host_id_of, identify
from shared.contracts.layout import ALONE
from shared.contracts.messages import (
    Allotment,
    CrawlRequest,
    GroupShares,
    HostParameters,
    PageUpdate,
)
from shared.pacing.groups import NO_LIMITS, Limits
from shared.policy.estimation.page_factors import activity_bins
from shared.policy.estimation.quiet_pages import QuietPages
from shared.policy.kernels.rate_tables import make_tables
from shared.rules.host_objectives import FRESHNESS_ALONE, HostObjectives
from shared.rules.page_events import GONE_FOR_GOOD, UNCHANGED
from shared.store.columns import (
    HostColumns,
    PageColumns,
    UnansweredPages,
    host_rules,
)
from shared.store.history import SOURCES
from shared.store.host_factors import HostFactors
from shared.store.hosts import HostLearning
from shared.store.page_groups import GatheredPages, sent
from shared.store.page_parts import UrlsOfPart, placed_urls
from shared.store.page_status import NEVER
from shared.store.snapshot import ShardSnapshot

_MANY: Final = 4_096
"""Pages of a shard that has more than it needs."""

_SEVERAL: Final = 256
"""Pages of a shard that has to make room for them."""


def warm_up(objectives: HostObjectives = FRESHNESS_ALONE) -> None:
    """Take a small shard through all that can happen; some seconds once, then cached on disk.

    Args:
        objectives: what pages are crawled for. Where it is something else than freshness, other
            kernels pick.
    """
    picking = PickingRules(120.0, 1.0, objectives=objectives)
    shard = make_shard(0, ShardRules(picking, 0.0, 300.0, float("inf"), 1.0))
    pages = [identify(f"http://warm.example/{number}") for number in range(3)]
    for page in pages:
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=1.0), 0.0)
    ids = np.array([page.page_id for page in pages], np.int64)
    rates = np.full(ids.size, 0.1)
    times = np.full(ids.size, 10.0)
    shard.parameters(ids, rates, rates, rates, activity_bins(rates))
    crawls_of(shard, shard.selector.select(np.array([1.0, 2.0]), 1.0, 0.0), 1.0)
    shard.outcomes(_unchanged(ids, times))
    first = pages[0]
    shard.host_parameters([HostParameters(first.host, 0.1, 0.5, [], [0.3] * 4, [1.0] * 6, 0.0)])
    for signalled in (times + 1.0, times + 3.0):
        shard.signals(ids, signalled, ["warm"] * ids.size)
        # One of a batch is crawled, the others are valued anew.
        shard.outcomes(_unchanged(ids[:1], signalled[:1] + 1.0))
    request = CrawlRequest("0-0-0", first.page_id, first.url, first.host, 1, 2, 0, 0, "new")
    restore(shard, [request])
    shard.limit_host(first.host, 1.5, None, 1.0)
    settle_tokens(shard)
    # A page whose request is heard of before the page.
    later = identify("http://warm.example/later")
    asked = CrawlRequest("0-0-1", later.page_id, later.url, later.host, 1, 2, 0, 0, "new")
    restore(shard, [asked])
    shard.upsert(later, PageUpdate("upsert", later.url, urgent=True), 0.0)
    shard.hosts.learned.weighted(shard.pages["host"][:1], np.zeros((1, SOURCES), np.uint16))
    shard.limit_host(first.host, 2.0, None, 1.0)
    shard.selector.select(np.array([20.0]), 1.0, 1e9)
    rows = shard.rows_of(ids[:1]).astype(np.int64)
    shard.take_back(rows)
    failures, misses = np.ones(1, np.int32), np.zeros(1, np.int16)
    attempts = shard.attempts.reserve(1)
    load_attempts(shard.pages, attempts, rows, times[:1], failures, misses, 300.0)
    _report(shard)
    shard_state(shard, 1.0)
    page_state(shard, first, 21.0, 1.0)
    shard.signals(ids[:1], times[:1] + 12.0, ["another"])
    shard.outcomes(_outcomes(ids[:1], times[:1] + 20.0, GONE_FOR_GOOD))
    page_state(shard, first, 31.0, 1.0)
    shard.upsert(first, PageUpdate("upsert", first.url), 32.0)
    for page in pages:
        shard.remove(page.page_id, 40.0)
    erase_host(shard, first.host, 40.5)
    for page in pages:  # in the rows of those that went
        shard.upsert(page, PageUpdate("upsert", page.url), 41.0)
    _take_turns(objectives)
    _grow(shard)
    _crowd(build_shard(_snapshot(), shard.rules))


def _report(shard: Shard) -> None:
    make_tables(odds=2, kappas=2)
    reporter, demand = DemandReporter(shard, "warm-up", 10.0), demand_of(shard, 1.0)
    reporter.set_demand(demand)
    reporter.report(21.0, 1.0)
    # Columns of the rows of several hosts lie apart, but for rates where bounds are heeded.
    rates = shard.crawl_rates()
    domains, names = (np.repeat(of, 4)[::2] for of in (rates.group_of, rates.named_of))
    apart = np.repeat(rates.hosts, 4)[::2]
    for hosts in (apart, apart.copy()):
        demand.misses(CrawlRates(hosts, domains, names, rates.groups))


def _take_turns(objectives: HostObjectives) -> None:
    """Pages of which reasons to crawl, and a class, have parts of the slots, some of a host at its
    limit; and more of the class than can be candidates."""
    shares = (0.3, 0.3, 0.3, 0.1)
    picking = PickingRules(120.0, 1.0, shares=shares, objectives=objectives)
    classes = (ClassRules("warm", 2.0, 0.3, 1),)
    shard = make_shard(0, ShardRules(picking, 0.0, 300.0, float("inf"), 1.0, classes))
    for number in range(2 * SPARE_CANDIDATES):
        page = identify(f"http://turns.example/{number}")
        crawled_at = 1.0 if number % 2 else None
        update = PageUpdate("upsert", page.url, crawled_at=crawled_at, page_class="warm")
        shard.upsert(page, update, 0.0)
    shard.select(np.array([2.0, 3.0, 4.0]), 1.0, 0.0)


def _grow(shard: Shard) -> None:
    """More pages, and more with signals, than the first tables have room for."""
    for number in range(_SEVERAL):
        page = identify(f"http://more.example/{number}")
        shard.upsert(page, PageUpdate("upsert", page.url), 42.0)
        shard.signals(np.array([page.page_id]), np.array([43.0]), ["warm"])


def _snapshot() -> ShardSnapshot:
    """Pages of one host, as they come from the store: each with signals of one source, or two."""
    host = "loaded.example"
    pages = sorted((identify(f"http://{host}/{n}") for n in range(_MANY)), key=_by_id)
    gathered = GatheredPages(0)
    part = gathered.taken(sent(np.array([page.page_id for page in pages])))
    found, waiting, by_source = gathered.by_id([part])
    columns = PageColumns(*(getattr(found, name).copy() for name in found.__slots__))
    columns.host_ids[:] = host_id_of(host)
    columns.importance[:] = 1.0
    columns.unsignalled_change_rate[:] = 0.1
    columns.max_age_days[:] = np.inf
    columns.last_crawled_at[:] = columns.last_signal_at[:] = np.linspace(1.0, 2.0, _MANY)
    stored = "".join(f"{page.url}\n" for page in pages).encode()
    parts = [UrlsOfPart.of(0, columns.page_ids, stored)]
    urls = placed_urls(0, parts, np.frombuffer(stored, np.uint8), columns.page_ids)
    return ShardSnapshot(
        shard=0,
        pages=columns,
        pending=waiting.pending,
        multipliers=waiting.multipliers,
        urls=urls,
        hosts=HostColumns(
            host_ids=columns.host_ids[:1],
            names=[host],
            rules=host_rules(1),
            limit_updated_at=np.full(1, NEVER),
            prior_shape=np.ones(1),
            prior_rate=np.ones(1),
            sources=[["warm"]],
            learning=HostLearning.initial(1),
            factors=[HostFactors.none()],
            quiet=QuietPages.initial(1),
        ),
        positions={},
        last_sources=waiting.last_sources,
        by_source=by_source,
        layout=ALONE,
        unanswered=UnansweredPages(columns.page_ids[:1], *_unanswered_once(requested_at=3.0)),
    )


def _unanswered_once(requested_at: float) -> tuple[NDArray[Any], ...]:
    """What is known of one page that nobody has answered, but its id."""
    times = requested_at, requested_at + 1.0, NEVER
    return np.ones(1, np.int16), *(np.full(1, time) for time in times)


def _by_id(page: PageIdentity) -> int:
    return page.page_id


def _crowd(shard: Shard) -> None:
    """A host at its limit, one of whose pages goes, and at that of its group, which changes; then
    more pages than the next slots need, and fewer."""
    host = shard.hosts.names[0]
    shard.prepare(99.0)
    keep_best(np.zeros(2, np.int32), np.ones(2), 1)  # where pages are more than one thread looks at
    next_turn(99.0, 0.5, 0.5)  # where shards share a thread
    for now in (100.0, 200.0):
        shard.selector.select(np.full(8, now), 1.0, 0.0)
        shard.selector.weigh(now, 10.0, _SEVERAL)
    penned = np.flatnonzero(shard.pages["bucket"] == PENNED)
    shard.remove(int(shard.lookup.ids[penned[0]]), 200.0)
    shard.limit_host(host, 100.0, None, 200.0)
    for limit in (0.01, 0.02):
        shares = GroupShares(host, limit, 200.0, 0.0, [Allotment(shard.number, 1.0)])
        shard.groups.follow(Limits((shares,)), 1.0, 250.0)
        shard.selector.select(np.full(8, 250.0), 1.0, 0.0)
    shard.groups.follow(NO_LIMITS, 1.0, 250.0)
    new = identify(f"http://{host}/new")
    shard.upsert(new, PageUpdate("upsert", new.url), 200.0)
    for now in range(300, 600, 15):  # far more are listed than needed, then a few
        shard.selector.select(np.full(1, float(now)), 1.0, 0.0)
    # Of many pages, which are not looked at all at once, too few may be crawled.
    shard.selector.share_work(_SEVERAL)
    shard.selector.select(np.full(8, 600.0), 1.0, 0.0)


def _unchanged(page_ids: NDArray[np.int64], times: NDArray[np.float64]) -> Outcomes:
    """Crawls that found no change."""
    return _outcomes(page_ids, times, UNCHANGED)


def _outcomes(page_ids: NDArray[np.int64], times: NDArray[np.float64], kind: int) -> Outcomes:
    size = page_ids.size
    return Outcomes(
        page_ids,
        times,
        np.full(size, kind, np.int8),
        np.zeros(size, np.int64),
        np.zeros(size, np.uint32),
    )
