"""A shard as Postgres knew it: from a snapshot's columns to rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.attempts import ask_at_once, load_attempts
from services.scheduler.state.crawls import short_digests
from services.scheduler.state.hosts import list_pages
from services.scheduler.state.learned_hosts import refresh_pages
from services.scheduler.state.loaded_pages import LoadedPages, fill_rows
from services.scheduler.state.rows import NEVER
from services.scheduler.state.rules import ClassRules, PickingRules, ShardRules
from services.scheduler.state.shard import Shard
from services.scheduler.state.url_arena import UrlArena
from shared.rules.host_objectives import HostObjectives
from shared.rules.host_rules import HostRules
from shared.rules.page_events import CONFIRMATIONS
from shared.runtime.clock import Clock
from shared.runtime.reason_shares import shares_by_queue
from shared.runtime.settings import Settings
from shared.store.columns import PageColumns
from shared.store.page_lookup import UNKNOWN, PageLookup
from shared.store.page_parts import DamagedStore
from shared.store.page_status import FIRST_AWAY
from shared.store.row_threads import in_slices
from shared.store.snapshot import ShardSnapshot


def shard_rules(settings: Settings, clock: Clock) -> ShardRules:
    """The rules of the settings."""
    days = settings.default_max_age_days
    return ShardRules(
        picking=PickingRules(
            request_timeout=clock.span(settings.request_timeout_seconds),
            speed=clock.speed,
            uniform=settings.policy == "uniform",
            least_interval=settings.least_interval_seconds,
            least_value=settings.least_value,
            shares=shares_by_queue(settings.reason_shares),
            objectives=HostObjectives(settings.objectives),
        ),
        signal_delay=settings.signal_delay_seconds,
        failed_retry=max(settings.failed_retry_seconds, settings.least_interval_seconds),
        default_max_age_days=float("inf") if days is None else days,
        default_host_rate=settings.default_host_crawls_per_second,
        classes=_class_rules(settings),
    )


def _class_rules(settings: Settings) -> tuple[ClassRules, ...]:
    found: list[ClassRules] = []
    for name, terms in settings.classes.items():
        lane = 1 + sum(rule.lane > 0 for rule in found) if terms.share > 0.0 else 0
        found.append(ClassRules(name, terms.weight, terms.share, lane))
    return tuple(found)


def build_shard(snapshot: ShardSnapshot, rules: ShardRules) -> Shard:
    """The shard as it was at the snapshot's positions."""
    count = snapshot.pages.page_ids.size
    shard = make_shard(snapshot.shard, rules, count)
    shard.layout, shard.loaded_epoch = snapshot.layout, snapshot.epoch
    shard.imported = snapshot.imported
    _load_hosts(shard, snapshot)
    shard.classes.load(snapshot.classes, snapshot.pages.page_class)
    shard.signal_times.reserve(int((snapshot.pages.last_signal_at > NEVER).sum()))
    _load_pages(shard, snapshot)
    urls = snapshot.urls
    shard.urls = UrlArena.load(urls.arena, urls.begins, urls.lengths, count)
    shard.used = count
    _load_failures(shard, snapshot.pages)
    _load_urgent(shard, snapshot.pages)
    shard.removals.load(snapshot.erased, snapshot.erased_hosts, snapshot.removed)
    shard.lookup.index(count)
    shard.unanswered.load(snapshot.unanswered)
    return shard


def _load_pages(shard: Shard, snapshot: ShardSnapshot) -> None:
    """Take a snapshot's pages: several threads make rows, and those that are made are put on the
    lists of their hosts meanwhile, in their order."""
    hosts = PageLookup.of(snapshot.hosts.host_ids)
    tables = shard.hosts.learned.tables

    def make(part: slice) -> NDArray[np.int32]:
        numbers = np.arange(part.start, part.stop, dtype=np.int32)
        loaded = _loaded_pages(shard, snapshot, hosts, part)
        fill_rows(
            shard.pages[part],
            shard.records[part],
            loaded,
            tables.alpha,
            tables.weights,
            float(shard.rules.default_max_age_days),
        )
        refresh_pages(shard.pages, shard.records, tables, numbers)
        shard.lookup.ids[part] = snapshot.pages.page_ids[part]
        return numbers

    for numbers in in_slices(make, snapshot.pages.page_ids.size):
        list_pages(shard.pages, shard.records, shard.hosts.rows, numbers)
        _load_signal_times(shard, snapshot, slice(numbers[0], numbers[-1] + 1))


def _loaded_pages(
    shard: Shard, snapshot: ShardSnapshot, hosts: PageLookup, part: slice
) -> LoadedPages:
    """What some rows are made of.

    Raises:
        DamagedStore: a page is of a host that is not there.
    """
    columns = snapshot.pages

    def some(column: NDArray[Any]) -> NDArray[Any]:
        # A copy: of columns that have one number for all pages there is nothing else to look at.
        return np.array(column[part], order="C")

    numbers = hosts.find_many(columns.host_ids[part])
    if (numbers == UNKNOWN).any():
        raise DamagedStore(f"shard {snapshot.shard}: pages are of hosts that have no row in hosts")
    classes = some(columns.page_class)
    return LoadedPages(
        hosts=numbers,
        importance=shard.classes.weighted(columns.importance[part], classes),
        page_class=classes,
        signal_evidence=some(columns.signal_evidence),
        signal_rate=some(columns.signal_rate),
        pending=some(snapshot.pending),
        last_crawled_at=some(columns.last_crawled_at),
        max_age_days=some(columns.max_age_days),
        status=some(columns.status),
        directories=snapshot.urls.directories[part],
        signal_count=some(columns.signal_count),
        change_rate=some(columns.unsignalled_change_rate),
        multipliers=some(snapshot.multipliers),
        last_changed_at=some(columns.last_changed_at),
        updated_at=some(columns.updated_at),
        digests=short_digests(columns.digest[part]),
    )


def _load_signal_times(shard: Shard, snapshot: ShardSnapshot, part: slice) -> None:
    latest, by_source = snapshot.pages.last_signal_at, snapshot.by_source
    signalled = part.start + np.flatnonzero(latest[part] > NEVER)
    rows = signalled.astype(np.int32)
    shard.signal_times.note(rows, snapshot.last_sources[signalled], latest[signalled])
    begin, end = np.searchsorted(by_source.rows, (part.start, part.stop))
    # Of a page that begins anew nothing is kept but the entry.
    several = by_source.rows[begin:end]
    has_signals = latest[several] > NEVER
    several = several[has_signals]
    shard.signal_times.load_by_source(
        several.astype(np.int32), by_source.ages[begin:end][has_signals], latest[several]
    )


def _load_failures(shard: Shard, columns: PageColumns) -> None:
    """Attempts of the pages whose last crawl failed, or that are away."""
    is_away = columns.status >= FIRST_AWAY
    failed = np.flatnonzero((columns.failures > 0) | is_away)
    # Pages that were gone before 404s were counted have none.
    misses = np.maximum(columns.misses[failed], np.where(is_away[failed], CONFIRMATIONS, 0))
    load_attempts(
        shard.pages,
        shard.attempts.reserve(failed.size),
        failed,
        columns.last_attempt_at[failed],
        np.maximum(columns.failures[failed], 1),
        misses.astype(np.int16),
        shard.rules.failed_retry,
    )


def _load_urgent(shard: Shard, columns: PageColumns) -> None:
    """Pages that somebody asks for at once, and that were not crawled since."""
    urgent = np.flatnonzero(columns.urgent_at > columns.last_crawled_at)
    attempts = shard.attempts.reserve(urgent.size)
    for row in urgent:
        ask_at_once(attempts, shard.pages[row], float(columns.urgent_at[row]))


def _load_hosts(shard: Shard, snapshot: ShardSnapshot) -> None:
    """Take a snapshot's hosts, whose numbers are their places there."""
    columns, hosts = snapshot.hosts, shard.hosts
    hosts.load(columns.names, columns.host_ids)
    rules = columns.rules
    has_rules = ~np.isnan(rules["max_crawls_per_second"]) | ~np.isnan(rules["crawl_delay"])
    has_rules |= (rules["blocked_until"] > NEVER) | (rules["asked_until"] > NEVER)
    has_rules |= (rules["failures"] > 0) | (rules["max_open_requests"] > 0)
    for host in np.flatnonzero(has_rules).tolist():
        hosts.load_rules(host, HostRules.read(rules[host]), float(columns.limit_updated_at[host]))
    for host in np.flatnonzero(~has_rules & (rules["failed_at"] > NEVER)).tolist():
        hosts.load_recovery(host, HostRules.read(rules[host]))
    hosts.learned.load(columns)
    for host in np.flatnonzero(rules["named_group"] != b"").tolist():
        shard.groups.name(host, rules["named_group"][host].decode())
