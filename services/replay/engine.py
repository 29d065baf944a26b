"""The loop of every policy that crawls the page of the greatest value, compiled.

Each slot takes in what happened until then, goes to the page that `selecting.select` names, and
the crawl is learned from (`learning`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import KNOWN, PRODUCTION, Columns, Hosts
from services.replay.learning import learn_from_crawl
from services.replay.selecting import Lists, Rules, admit, renew_lists, select, take_token
from services.replay.trace import CHANGE, SIGNAL
from shared.policy.compiled import compiled
from shared.policy.estimation.smoothed import PSEUDO_DAYS, PSEUDO_SIGNALS
from shared.policy.estimation.sources import page_evidence

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled
def _take_signal(
    page: Any, row: int, columns: Columns, hosts: Hosts, rules: Rules, slot: int, day: float
) -> None:
    page.all_signals += 1.0
    if rules.learner == KNOWN:
        if day > page.last_crawl + rules.signal_delay_days or not page.held:
            page.signals += 1.0
        return
    columns.totals[row, slot] += 1.0
    hosts.signals[page.host, slot] += 1.0
    if day > page.last_crawl + rules.signal_delay_days or not page.held:
        page.signals += hosts.weights[page.host, slot]
        columns.pending[row, slot] += 1.0
    # One page of estimation.smoothed.signal_rates, as the estimator worker calls it.
    page.gamma = (page.all_signals + PSEUDO_SIGNALS) / (day - page.born + PSEUDO_DAYS)
    if rules.learner == PRODUCTION and columns.records[row] > 0:
        page.kappa = page_evidence(
            columns.totals[row], hosts.signals[page.host], columns.kappa[row]
        )


@compiled
def crawl_slots(
    columns: Columns,
    hosts: Hosts,
    rules: Rules,
    lists: Lists,
    slot_days: Floats,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    crawled: Integers,
) -> int:
    """Fill `crawled`, one page for each of `slot_days`; returns the next event.

    Events are those of `Trace.merged_events`, with the source slot added to the kind of a signal.
    """
    pages, limit = columns.pages, hosts.limit
    for slot in range(slot_days.size):
        now = slot_days[slot]
        renew_lists(pages, limit, rules, lists, slot_days, slot)
        while event < event_days.size and event_days[event] <= now:
            row, day = event_pages[event], event_days[event]
            page = pages[row]
            if event_kinds[event] == CHANGE:
                page.changed = page.changed or day > page.born
            elif rules.uses_signals and day >= page.born:
                source = event_kinds[event] - SIGNAL
                _take_signal(page, row, columns, hosts, rules, source, day)
                admit(page, row, rules, lists)
            event += 1
        row = select(pages, hosts, rules, lists, now)
        crawled[slot] = row
        if row >= 0:
            take_token(hosts, pages[row].host, now)
            learn_from_crawl(columns, hosts, rules.learner, rules.bursts, row, now)
            admit(pages[row], row, rules, lists)
    return event
