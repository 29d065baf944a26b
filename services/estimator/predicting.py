"""What was expected of a crawl before its outcome is learned from; compiled.

The parameters are those of the last fit before, so a prediction knows nothing of what it is about:
`freshet calibration` compares the two.
"""

from typing import Any

import numpy as np

from services.estimator.columns import HostTables, Verdicts
from shared.policy.compiled import compiled
from shared.policy.estimation.prediction import expected_fresh_days
from shared.policy.estimation.quiet_pages import NEVER_CHANGED
from shared.store.history import SOURCES, Rings
from shared.units import SECONDS_PER_DAY


@compiled
def mean_of_host(page: Any, hosts: HostTables) -> float:
    """Prior mean of a page's α."""
    host = hosts.records[page.host]
    mean: float = host.prior_shape / host.prior_rate * page.factor
    return mean


@compiled
def note_prediction(
    page: Any,
    rings: Rings,
    hosts: HostTables,
    row: int,
    age: int,
    time: float,
    days: float,
    event: int,
    results: Verdicts,
) -> None:
    """Note what the model said of an interval that a crawl has ended.

    Args:
        page: its record, its signals those of the interval.
        rings: the pages' records, that of the crawl not among them yet.
        hosts: what is known of hosts, the crawl not counted yet.
        row: of the page.
        age: the bin that held during the interval (`bursts.age_bin`).
        time: of the crawl.
        days: since the crawl before.
        event: of the crawl.
        results: where it is noted.
    """
    rate = page.unsignalled_change_rate
    if np.isnan(rate):
        rate = mean_of_host(page, hosts)
    rate *= rings.multiplier[row]
    if age == NEVER_CHANGED:
        rate *= hosts.records[page.host].quiet_belief
    evidence, sources = 0.0, 0
    for slot in range(SOURCES):
        count = rings.pending[row, slot]
        if count > 0:
            of_one = rings.evidence[row, slot]
            if rings.seen[row] == 0:
                of_one = -np.log1p(-hosts.precision[page.host, slot])
            evidence += of_one * count
            sources |= 1 << slot
    last = days - (time - page.last_signal_at) / SECONDS_PER_DAY
    results.staleness[event] = rate * days + evidence
    results.fresh_days[event] = expected_fresh_days(rate, days, evidence, page.signals, last)
    results.sources[event] = sources
