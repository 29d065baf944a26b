"""What was learned of pages, beside fits of their crawl records as the database has them."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.verify.checks.finding import Finding
from services.verify.simulation.facts import Facts
from services.verify.simulation.store.statements import Statements
from shared.policy.estimation.host_priors import HostPriors
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map
from shared.policy.estimation.page_factors import activity_bins
from shared.store.snapshot import LearningSnapshot

_TOLERANCE: Final = 0.15
"""Relative: a page is not fitted anew when its host's prior moves by a part of `material_change`,
nor when it moves again before the page's next crawl."""


def learned(facts: Facts) -> Finding:
    """The rate of each page that has crawl records is the mode of its posterior, more or less."""
    statements = Statements(facts.database)
    snapshots = [statements.load_for_learning("", shard) for shard in sorted(facts.database.pages)]
    return Finding.of(
        "learned",
        "what is known of pages is learned from all of their crawls",
        (offender for snapshot in snapshots for offender in _offenders(facts, snapshot)),
        looked_at=sum(int((snapshot.histories.seen > 0).sum()) for snapshot in snapshots),
    )


def _offenders(facts: Facts, snapshot: LearningSnapshot) -> Iterator[str]:
    rings, pages = snapshot.histories, snapshot.pages

    def url_of(row: int) -> str:
        return facts.database.urls[snapshot.shard, int(pages.page_ids[row])]

    strangers = np.flatnonzero(~np.isin(pages.host_ids, snapshot.hosts.host_ids)).tolist()
    if strangers:  # What its crawls say nobody knows without what is known of its host.
        yield from (f"{url_of(row)}: its host is not there" for row in strangers)
        return
    now, before = (_modes(snapshot, bins_back) for bins_back in (0, 1))
    least, most = np.minimum(now, before), np.maximum(now, before)
    for row in np.flatnonzero(rings.seen > 0).tolist():
        rate = float(pages.unsignalled_change_rate[row])
        if not (1.0 - _TOLERANCE) * least[row] <= rate <= (1.0 + _TOLERANCE) * most[row]:
            said = f"changes {rate:.4g} times a day, and its crawls say {now[row]:.4g}"
            yield f"{url_of(row)}: {said}"


def _modes(snapshot: LearningSnapshot, bins_back: int) -> NDArray[np.float64]:
    """The mode of each page's rate, by the activity that it has, or had so many bins before: with
    its next signals a page moves on, and it is fitted at its next crawl."""
    rings, hosts = snapshot.histories, snapshot.hosts
    owners = np.searchsorted(hosts.host_ids, snapshot.pages.host_ids)
    count = rings.seen.size
    bins = activity_bins(snapshot.pages.signal_count).astype(np.int64)
    activity = np.maximum(bins - bins_back, 0)
    factors = np.ones(count)
    for row, owner in enumerate(owners.tolist()):
        of_host = hosts.factors[owner]
        factors[row] = (
            of_host.activity[activity[row]] * of_host.of(snapshot.directories[row : row + 1])[0]
        )
    priors = HostPriors(
        hosts.prior_shape[owners],
        hosts.prior_rate[owners] / factors,
        hosts.learning.precision[owners],
    )
    fitted = MapColumns(
        np.zeros(count),
        np.zeros((count, rings.signals.shape[2]), np.float32),
        np.zeros(count, np.float32),
    )
    every = np.arange(count)
    records = (rings.interval_days, rings.signals, rings.changed, rings.seen)
    fit_rings_map(every, every, *records, priors, fitted)
    return fitted.unsignalled_change_rate
