"""Where pages and hosts in Postgres are not what their events come to."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from services.verify.reference.fitting import evidence_of
from services.verify.reference.state import HostState, PageState, State

TOLERANCE: Final = 1e-9
"""Sums over pages may be added up in another order after a restart."""

SINGLE_TOLERANCE: Final = 1e-6
"""Of what is stored in single precision."""

_PAGE_EXACT: Final = (
    *("importance", "max_age_days", "first_seen_at", "last_crawled_at", "last_attempt_at"),
    *("last_changed_at", "last_signal_at", "updated_at", "urgent_at", "digest", "signal_count"),
    *("signals", "crawls", "changes", "failures", "misses", "status", "pending", "totals"),
    *("by_source", "page_class"),
)
"""Given or counted, not computed. A billionth of a time would be two seconds."""

_PAGE: Final = ("unsignalled_change_rate", "signal_evidence", "signal_rate")
_PAGE_SINGLE: Final = ("source_evidence", "posterior_shape", "multiplier")
_HOST_EXACT: Final = (
    *("max_crawls_per_second", "blocked_until", "crawl_delay", "asked_until", "failures"),
    *(
        "failed_at",
        "max_open_requests",
        "named_group",
        "named_since",
        "signals",
        "sources",
        "numbers",
    ),
)
_HOST: Final = (
    *("prior_shape", "prior_rate", "precision", "expected_changes", "predicted_changes"),
    *("activity", "factors", "quiet_found", "quiet_predicted", "quiet_belief"),
)


def differences(theirs: State, mine: State) -> tuple[list[str], list[str]]:
    """What of pages, and what of hosts, is other in the tables than events come to."""
    return list(_of_pages(theirs, mine)), list(_of_hosts(theirs, mine))


def _of_pages(theirs: State, mine: State) -> Iterator[str]:
    for page_id in sorted(theirs.pages.keys() ^ mine.pages.keys()):
        where = "only in Postgres" if page_id in theirs.pages else "not in Postgres"
        yield f"page {page_id} is {where}"
    for page_id, page in mine.pages.items():
        stored = theirs.pages.get(page_id)
        if stored is None:
            continue
        who = f"page {page_id} (shard {page.shard})"
        yield from _fields(who, stored, page, _PAGE_EXACT, 0.0)
        yield from _fields(who, stored, page, _PAGE, TOLERANCE)
        yield from _fields(who, stored, page, _PAGE_SINGLE, SINGLE_TOLERANCE)
        if not _same_records(stored, page):
            yield f"{who}: records are {stored.records}, its events come to {page.records}"


def _same_records(one: PageState, other: PageState) -> bool:
    return len(one.records) == len(other.records) and all(
        a.signals == b.signals
        and a.changed == b.changed
        and math.isclose(a.interval_days, b.interval_days, rel_tol=SINGLE_TOLERANCE)
        for a, b in zip(one.records, other.records, strict=True)
    )


def _of_hosts(theirs: State, mine: State) -> Iterator[str]:
    for name in sorted(theirs.hosts.keys() ^ mine.hosts.keys()):
        yield f"host {name} is {'only' if name in theirs.hosts else 'not'} in Postgres"
    for name, host in mine.hosts.items():
        stored = theirs.hosts.get(name)
        if stored is None:
            continue
        who = f"host {name} (shard {host.shard})"
        yield from _fields(who, stored, host, _HOST_EXACT, 0.0)
        yield from _fields(who, stored, host, _HOST, TOLERANCE)
        precision = -math.expm1(-evidence_of(host))
        if stored.prior_precision is not None and not _close(
            stored.prior_precision, precision, TOLERANCE
        ):
            yield f"{who}: precision is {stored.prior_precision}, its events come to {precision}"


def _fields(
    who: str,
    stored: PageState | HostState,
    expected: PageState | HostState,
    names: Sequence[str],
    tolerance: float,
) -> Iterator[str]:
    for name in names:
        theirs, mine = getattr(stored, name), getattr(expected, name)
        if not _close(theirs, mine, tolerance):
            yield f"{who}: {name} is {theirs}, its events come to {mine}"


def _close(one: object, other: object, tolerance: float) -> bool:
    if isinstance(one, list | int | bytes | str) and not tolerance:
        return one == other  # as a float, a hash would lose digits, and a name is none
    return _near(one, other, tolerance)


def _near(one: object, other: object, tolerance: float) -> bool:
    mine, theirs = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return mine.shape == theirs.shape and bool(
        np.allclose(mine, theirs, rtol=tolerance, atol=0.0, equal_nan=True)
    )
