"""Whether predictions came true, in figures."""

from typing import Any, Final

import numpy as np

from shared.policy.calibration import (
    TENTHS,
    Crawls,
    Estimate,
    by_age,
    chance_of,
    compare,
    freshness,
    tenth_of,
)
from shared.store.predictions import PredictedCrawls
from shared.units import SECONDS_PER_DAY

NO_SIGNAL: Final = "no signal"
"""What stands for a source where crawls had no signal in their intervals."""


def report(seen: PredictedCrawls, hosts: int, now: float) -> dict[str, Any]:
    """All figures of some crawls.

    Args:
        seen: the crawls.
        hosts: of so many, those with the most crawls, there are figures.
        now: clock time, Unix seconds.

    Returns:
        `crawls`, `since` (Unix seconds), `share_of_pages`, `all`, `deciles`, `hosts` and `sources`
        (each with `crawls`, `predicted`, `found`, `error` and `ratio`), `freshness` and `by_age`.
    """
    crawls = seen.crawls
    chances = chance_of(crawls.staleness)
    tenths = tenth_of(chances)
    silent = np.logical_not(np.any([*seen.sources.values(), np.zeros(chances.size, bool)], axis=0))
    sources = {NO_SIGNAL: silent, **dict(sorted(seen.sources.items()))}
    names, counts = np.unique(seen.hosts, return_counts=True)
    most = names[np.argsort(-counts, kind="stable")[:hosts]].tolist()
    days = max(now - seen.since, 1.0) / SECONDS_PER_DAY
    return {
        "crawls": chances.size,
        "pages": int(np.unique(crawls.pages).size),
        "since": seen.since,
        "share_of_pages": seen.share,
        "all": _compared(crawls, chances, np.ones(chances.size, np.bool_)),
        "deciles": [
            {"decile": f"{tenth / TENTHS:.1f} to {(tenth + 1) / TENTHS:.1f}", **found}
            for tenth in range(TENTHS)
            if (found := _compared(crawls, chances, tenths == tenth))
        ],
        "hosts": [
            {"host": name, **_compared(crawls, chances, seen.hosts == name)} for name in most
        ],
        "sources": [
            {"source": name, **found}
            for name, chosen in sources.items()
            if (found := _compared(crawls, chances, chosen))
        ],
        "freshness": _freshness(crawls, seen, days),
        "by_age": _by_age(crawls, max(seen.pages, 1) * days / chances.size),
    }


def _compared(crawls: Crawls, chances: Any, chosen: Any) -> dict[str, Any]:
    """Figures of the chosen crawls; nothing where there are none."""
    if not chosen.any():
        return {}
    compared = compare(chances[chosen], crawls.changed[chosen])
    ratio = compared.found / compared.predicted if compared.predicted > 0.0 else None
    return {**compared._asdict(), "ratio": ratio}


def _freshness(crawls: Crawls, seen: PredictedCrawls, days: float) -> dict[str, Any]:
    found = freshness(crawls)
    # Of an interval that began before, only what lies inside counts as covered.
    since = np.maximum(crawls.crawled_at - seen.since, 0.0) / SECONDS_PER_DAY
    inside = np.minimum(crawls.interval_days, since)
    return {
        "expected": found.expected,
        "found": found.found._asdict(),
        "least": found.least,
        "difference": found.difference._asdict(),
        "covered": min(float(inside.sum()) / (max(seen.pages, 1) * days), 1.0),
    }


def _by_age(crawls: Crawls, revisit_days: float) -> dict[str, Any]:
    found = by_age(crawls, revisit_days)
    return {
        name: value._asdict() if isinstance(value, Estimate) else value
        for name, value in found._asdict().items()
    }
