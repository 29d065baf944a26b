"""What is learned and announced of pages beside their fits: compiled, a look at each page.

A batch has a few pages of each of many shards. One look at a page costs a hundredth of what the
same costs as operations on small arrays.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.page_factors import activity_bin
from shared.policy.estimation.sources import mean_evidence
from shared.store.page_status import ACTIVE

_USUAL: Final = (1.0, 0.0, 0.0, 0.0)
"""Signals by source where there are none: one of the first source (`sources.usual_mix`)."""


@compiled
def each_once(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """As `numpy.unique`, whose preparations cost more than a small batch."""
    ordered = np.sort(rows)
    kept = 0
    for place in range(ordered.size):
        if place == 0 or ordered[place] != ordered[kept - 1]:
            ordered[kept] = ordered[place]
            kept += 1
    return ordered[:kept]


@compiled
def evidence_of_page(totals: Any, of_host: Any, evidence: Any) -> float:
    """κ̄ of a page: by its own mix of sources, or its host's.

    Args:
        totals: the page's signals ever, by source.
        of_host: its host's.
        evidence: κ of each source.
    """
    own, theirs = 0.0, 0.0
    for source in range(len(totals)):
        own += totals[source]
        theirs += of_host[source]
    if own > 0.0:
        return mean_evidence(totals, evidence)
    return mean_evidence(of_host, evidence) if theirs > 0.0 else mean_evidence(_USUAL, evidence)


@compiled
def evidence_of_pages(
    pages: NDArray[Any],
    totals: NDArray[np.uint32],
    of_hosts: NDArray[np.float64],
    rows: NDArray[np.int64],
    evidence: NDArray[Any],
) -> NDArray[np.float64]:
    """`evidence_of_page` of some rows of `pages`; `evidence` has a row for each of them."""
    found = np.empty(rows.size)
    for place in range(rows.size):
        row = rows[place]
        found[place] = evidence_of_page(totals[row], of_hosts[pages[row].host], evidence[place])
    return found


@compiled
def settle(
    pages: NDArray[Any],
    seen: NDArray[np.int32],
    totals: NDArray[np.uint32],
    evidence: NDArray[np.float32],
    of_hosts: NDArray[np.float64],
    rows: NDArray[np.int64],
) -> None:
    """Give pages with crawl records their κ̄, by their fits.

    Args:
        pages: all records.
        seen: crawl records that ever came of each.
        totals: signals ever, by source, (pages, SOURCES).
        evidence: κ as fitted, (pages, SOURCES).
        of_hosts: signals ever of hosts, (hosts, SOURCES).
        rows: of the pages.
    """
    for place in range(rows.size):
        row = rows[place]
        page = pages[row]
        if seen[row] > 0:
            page.signal_evidence = evidence_of_page(totals[row], of_hosts[page.host], evidence[row])


@compiled
def take_material(
    pages: NDArray[Any], seen: NDArray[np.int32], rows: NDArray[np.int64], material_change: float
) -> NDArray[np.bool_]:
    """Which active pages have parameters that changed materially; they count as announced now.

    Args:
        pages: all records.
        seen: crawl records that ever came of each; without one, a page has no parameters but γ.
        rows: of the pages.
        material_change: relative change that matters.
    """
    chosen = np.zeros(rows.size, np.bool_)
    for place in range(rows.size):
        row = rows[place]
        page = pages[row]
        if page.status != ACTIVE:
            continue
        activity = activity_bin(page.signal_count)
        read = page.is_read
        if (
            _is_material(page.signal_rate, page.announced_signal_rate, read, material_change)
            or (seen[row] == 0 and activity != page.announced_activity)
            or (
                seen[row] > 0
                and (
                    _is_material(
                        page.unsignalled_change_rate,
                        page.announced_change_rate,
                        read,
                        material_change,
                    )
                    or _is_material(
                        page.signal_evidence, page.announced_evidence, read, material_change
                    )
                )
            )
        ):
            chosen[place] = True
            page.announced_change_rate = page.unsignalled_change_rate
            page.announced_evidence = page.signal_evidence
            page.announced_signal_rate = page.signal_rate
            page.announced_activity = activity
    return chosen


@compiled
def _is_material(now: float, before: float, is_read: bool, material_change: float) -> bool:
    # What was never announced is NaN: nothing is within reach of it.
    if not abs(now - before) <= material_change * before:
        return True
    return is_read and _step_of(before, material_change) != _step_of(now, material_change)


@compiled
def _step_of(value: float, material_change: float) -> float:
    """The step of a parameter, of a grid that never moves.

    Pages come from the database again and again, and each time what the schedulers know of them is
    only near what is stored. By what has changed since then, they might be led away little by
    little; within a step of the grid they are not.
    """
    step: float = np.floor(np.log(value) / np.log1p(material_change))
    return step
