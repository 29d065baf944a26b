"""Learning the parameters of pages from their crawl records, and which changes matter."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.estimator.application import ShardEffects
from services.estimator.effects import SECONDS_PER_DAY
from services.estimator.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.messages import PageParameters
from shared.policy.estimation.smoothed import SmoothedColumns, fit_rings, signal_rates
from shared.store.models import ACTIVE

_ANNOUNCED: Final = {
    "unsignalled_change_rate": "announced_change_rate",
    "signal_evidence": "announced_evidence",
    "signal_rate": "announced_signal_rate",
}


def learn(done: ShardEffects) -> None:
    """Fit α and κ of the pages with new crawl records, and γ of all that were touched."""
    shard = done.shard
    _fit(shard, done.learned)
    rows = np.concatenate([done.touched, done.added])
    pages = shard.pages[rows]
    latest = np.maximum(pages["last_signal_at"], pages["last_attempt_at"])
    watched = np.maximum(latest - pages["first_seen_at"], 0.0) / SECONDS_PER_DAY
    shard.pages["signal_rate"][rows] = signal_rates(pages["signal_count"], watched)


def _fit(shard: Shard, rows: NDArray[np.int64]) -> None:
    if rows.size == 0:
        return
    rings = shard.rings.take(rows)
    fitted = SmoothedColumns(*np.zeros((4, rows.size)))
    fit_rings(
        np.arange(rows.size), rings.interval_days, rings.signals, rings.changed, rings.seen, fitted
    )
    pages, hosts = shard.pages, shard.hosts.records
    of_host = pages["host"][rows]
    fitted_before = pages["fitted"][rows] != 0
    before = np.where(fitted_before, pages["unsignalled_change_rate"][rows], 0.0)
    np.add.at(hosts["rate_sum"], of_host, fitted.unsignalled_change_rate - before)
    np.add.at(hosts["rate_pages"], of_host, ~fitted_before)
    pages["fitted"][rows] = 1
    pages["unsignalled_change_rate"][rows] = fitted.unsignalled_change_rate
    pages["signal_evidence"][rows] = fitted.signal_evidence


def announcements(
    done: ShardEffects, material_change: float, now: float
) -> list[tuple[bytes, bytes]]:
    """Keys and values of `page-parameters` for active pages whose parameters changed materially
    since they were last announced, which they hereby are.

    Args:
        done: a batch's effects, learned from.
        material_change: relative change of a parameter that matters.
        now: clock time, Unix seconds.
    """
    shard = done.shard
    rows = np.concatenate([done.touched, done.added])
    pages = shard.pages[rows]
    material = np.zeros(rows.size, np.bool_)
    for name, announced in _ANNOUNCED.items():
        # A page that was never announced has NaN there: nothing is within reach of it.
        limit = material_change * pages[announced]
        material |= ~(np.abs(pages[name] - pages[announced]) <= limit)
    chosen = rows[material & (pages["status"] == ACTIVE)]
    for name, announced in _ANNOUNCED.items():
        shard.pages[announced][chosen] = shard.pages[name][chosen]
    names = shard.hosts.names
    columns = [shard.pages[name][chosen].tolist() for name in ("page_id", "host", *_ANNOUNCED)]
    return [
        (
            names[host].encode(),
            encode(PageParameters(page_id, names[host], alpha, kappa, gamma, now)),
        )
        for page_id, host, alpha, kappa, gamma in zip(*columns, strict=True)
    ]
