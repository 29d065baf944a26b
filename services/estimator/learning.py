"""Learning the parameters of pages from their crawl records, and which changes matter."""

from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.estimator.application import ShardEffects
from services.estimator.settling import evidence_of_pages, settle, take_material
from services.estimator.shard import ANNOUNCED, Shard
from shared.contracts.codec import encode
from shared.contracts.fields import MAX_RATE
from shared.contracts.messages import HostParameters, PageParameters
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map
from shared.policy.estimation.page_factors import activity_bins
from shared.store.history import OWN_SOURCES, SOURCES
from shared.store.host_factors import HostFactors
from shared.store.owners import Announcing
from shared.store.page_status import ACTIVE

Messages = list[tuple[bytes, bytes]]
"""Keys and values."""


class News(NamedTuple):
    """What schedulers are to be told of a shard."""

    announcing: Announcing
    """What it is about."""
    pages: Messages
    """`page-parameters`."""
    hosts: Messages
    """`host-parameters`."""


def learn(done: ShardEffects) -> None:
    """Fit α and κ of the pages with new crawl records; κ̄ of all that were touched."""
    shard = done.shard
    if done.learned.size:
        assign(shard, done.learned, fit(shard, done.learned))
    rows = np.concatenate([done.touched, done.added])
    if not rows.size:
        return
    rings = shard.rings
    of_hosts = shard.hosts.learning.signals
    settle(shard.pages, rings.seen, rings.totals, rings.evidence, of_hosts, rows)


def fit(shard: Shard, rows: NDArray[np.int64]) -> MapColumns:
    """The posterior modes of some pages under their hosts' priors, in the order of `rows`."""
    fitted = MapColumns(
        np.zeros(rows.size),
        np.zeros((rows.size, SOURCES), np.float32),
        np.zeros(rows.size, np.float32),
    )
    if rows.size:
        rings, own = shard.rings, np.arange(rows.size)
        fit_rings_map(
            own,
            own,
            rings.interval_days[rows],
            rings.signals[rows],
            rings.changed[rows],
            rings.seen[rows],
            shard.hosts.priors_of(shard.pages[rows]),
            fitted,
        )
        # Crawls that are microseconds apart may say more than anybody takes.
        rates = fitted.unsignalled_change_rate
        np.minimum(rates, MAX_RATE, out=rates)
    return fitted


def assign(shard: Shard, rows: NDArray[np.int64], fitted: MapColumns) -> None:
    """Make fits the pages' parameters, but for κ̄."""
    shard.pages["unsignalled_change_rate"][rows] = fitted.unsignalled_change_rate
    shard.rings.evidence[rows] = fitted.signal_evidence
    shard.rings.posterior_shape[rows] = fitted.posterior_shape


def mean_evidence(
    shard: Shard, rows: NDArray[np.int64], evidence: NDArray[Any]
) -> NDArray[np.float64]:
    """κ̄ of pages whose sources have the given κ: by their own mix of sources, or their host's."""
    of_hosts = shard.hosts.learning.signals
    return evidence_of_pages(shard.pages, shard.rings.totals, of_hosts, rows, evidence)


def material_news(done: ShardEffects, material_change: float, now: float) -> News:
    """What changed materially since it was last announced, which it hereby is.

    Args:
        done: a batch's effects, learned from.
        material_change: relative change of a parameter that matters.
        now: clock time, Unix seconds.
    """
    pages = material_pages(done, material_change)
    return _news(done.shard, pages, material_hosts(done, material_change), now)


def news_again(shard: Shard, announcing: Announcing, now: float) -> News:
    """What an owner before may not have announced any more, as the database has it.

    Args:
        shard: as it was loaded.
        announcing: noted by the last commit.
        now: clock time, Unix seconds.
    """
    pages = shard.rows_of(announcing.page_ids)
    pages = pages[pages >= 0]
    known = shard.hosts.records["host_id"][: len(shard.hosts.names)]
    hosts = np.flatnonzero(np.isin(known, announcing.host_ids))
    return _news(shard, pages[shard.pages["status"][pages] == ACTIVE], hosts, now)


def _news(shard: Shard, pages: NDArray[np.int64], hosts: NDArray[np.int64], now: float) -> News:
    about = Announcing(shard.pages["page_id"][pages], shard.hosts.records["host_id"][hosts])
    return News(about, _page_messages(shard, pages, now), _host_messages(shard, hosts, now))


def material_pages(done: ShardEffects, material_change: float) -> NDArray[np.int64]:
    """Rows of active pages whose parameters changed materially; they count as announced now.

    A page without a crawl record has no parameters of its own but γ.
    """
    shard = done.shard
    rows = np.concatenate([done.touched, done.added])
    if not rows.size:
        return rows
    chosen: NDArray[np.int64] = rows[
        take_material(shard.pages, shard.rings.seen, rows, material_change)
    ]
    return chosen


def _page_messages(shard: Shard, rows: NDArray[np.int64], now: float) -> Messages:
    pages = shard.pages[rows]
    page_ids, alphas, kappas, gammas = (pages[name].tolist() for name in ("page_id", *ANNOUNCED))
    for place in np.flatnonzero(shard.rings.seen[rows] == 0).tolist():
        alphas[place] = kappas[place] = None
    hosts = [shard.hosts.names[host] for host in pages["host"].tolist()]
    activities = activity_bins(np.ascontiguousarray(pages["signal_count"])).tolist()
    messages = map(
        PageParameters,
        *(page_ids, hosts, alphas, kappas, gammas),
        *(repeat(now), repeat(shard.epoch), activities),
    )
    return list(zip(map(str.encode, hosts), map(encode, messages), strict=True))


def material_hosts(done: ShardEffects, material_change: float) -> NDArray[np.int64]:
    """Rows of hosts of which something changed materially, or that have a new source, or another
    group (see `material_pages`)."""
    shard, rows = done.shard, done.counted_hosts
    hosts = shard.hosts
    figures, known = hosts.figures(rows), hosts.announced[rows]
    moved = np.abs(figures - known) > material_change * known
    # A source that never sent a signal has no weight yet.
    moved[:, 2 : 2 + SOURCES] &= hosts.learning.signals[rows] > 0
    chosen: NDArray[np.bool_] = np.any(moved, axis=1)
    if told := done.new_sources | done.regrouped:
        chosen |= np.isin(rows, sorted(told))
    none = HostFactors.none()
    factored = np.flatnonzero(np.isin(rows, done.factored)) if done.factored.size else done.factored
    for place in factored.tolist():
        row = int(rows[place])
        known_factors = hosts.announced_factors.get(row, none)
        chosen[place] |= hosts.factors[row].is_beyond(known_factors, material_change)
    hosts.announced[rows[chosen]] = figures[chosen]
    for row in rows[chosen].tolist():
        if row in hosts.factors:
            hosts.announced_factors[row] = hosts.factors[row]
    return rows[chosen]


def _host_messages(shard: Shard, rows: NDArray[np.int64], now: float) -> Messages:
    names, figures = shard.hosts.names, shard.hosts.announced[rows].tolist()
    return [
        (names[row].encode(), encode(host_parameters(shard, row, of_host, now)))
        for row, of_host in zip(rows.tolist(), figures, strict=True)
    ]


def host_parameters(shard: Shard, row: int, figures: list[float], now: float) -> HostParameters:
    """What is announced of a host: its figures of `Hosts.announced`."""
    rate, evidence, *others = figures
    factors = shard.hosts.announced_factors.get(row) or HostFactors.none()
    return HostParameters(
        host=shard.hosts.names[row],
        unsignalled_change_rate=rate,
        signal_evidence=evidence,
        sources=shard.hosts.sources[row][:OWN_SOURCES],
        source_evidence=others[:SOURCES],
        burst_multipliers=others[SOURCES:],
        updated_at=now,
        epoch=shard.epoch,
        activity_factors=factors.activity.tolist(),
        directories=factors.directories.tolist(),
        directory_factors=factors.factors.tolist(),
        group=shard.hosts.records[row]["named_group"].decode() or None,
    )
