"""Crawls that were predicted, and what they found, of a sample of pages."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.policy.calibration import Crawls
from shared.store.connection import READING, Limits, connect
from shared.store.history import OWN_SOURCES, SOURCES
from shared.store.hosts import unpack_sources
from shared.store.page_status import ACTIVE

_PARTS: Final = 1 << 16
"""Pages are sampled by the low bits of their ids, which are hashes."""

_LARGER: Final = 4
"""A sample without a crawl is made so many times as large."""

_COUNT: Final = """
SELECT count(*), min(recorded_at) FROM observations
WHERE recorded_at >= %(since)s AND staleness IS NOT NULL
"""

_CRAWLS: Final = """
SELECT page_id, crawled_at, interval_days, changed, staleness, fresh_days,
       importance * coalesce(weight, 1), seen.sources, host, hosts.sources
FROM observations AS seen
JOIN pages USING (shard, page_id)
JOIN hosts USING (shard, host_id)
LEFT JOIN page_classes AS class ON class.shard = pages.shard AND class.number = page_class
LEFT JOIN unnest(%(classes)s::text[], %(weights)s::float8[]) AS of (name, weight) USING (name)
WHERE recorded_at >= %(since)s AND staleness IS NOT NULL AND (page_id & %(mask)s) < %(parts)s
ORDER BY page_id, crawled_at
"""

_PAGES: Final = """
SELECT count(*) FROM pages WHERE status = %(active)s AND (page_id & %(mask)s) < %(parts)s
"""

OTHERS: Final = "others"
"""Sources that have no slot of their own at a host."""


class PredictedCrawls(NamedTuple):
    """Crawls of a sample of pages since some time."""

    crawls: Crawls
    hosts: NDArray[Any]
    """Name of each crawl's host."""
    sources: dict[str, NDArray[np.bool_]]
    """Source → which crawls had a signal of it in their intervals."""
    since: float
    """When the first of all was recorded, Unix seconds."""
    share: float
    """Of the pages that are in the sample."""
    pages: int
    """Active ones in the sample, crawled or not."""


def read_predicted(
    database_url: str,
    since: float,
    most: int,
    limits: Limits = READING,
    weights: Mapping[str, float] | None = None,
) -> PredictedCrawls | None:
    """Crawls recorded since a time, of so many pages that there are about `most`; None: none.

    Args:
        database_url: libpq URL.
        since: Unix seconds.
        most: crawls that are wanted.
        limits: of the session.
        weights: by class, by what the importance of its pages is multiplied.

    Raises:
        psycopg.Error: the database is away, or refuses.
    """
    with connect(database_url, "calibration", limits=limits) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        counted = connection.execute(_COUNT, {"since": since}).fetchone()
        if counted is None or not counted[0]:
            return None
        parts = min(max(_PARTS * most // counted[0], 1), _PARTS)
        chosen = {"since": since, "mask": _PARTS - 1, "parts": parts, "active": ACTIVE}
        said = weights or {}
        of_classes = {"classes": list(said), "weights": list(said.values())}
        rows = connection.execute(_CRAWLS, chosen | of_classes).fetchall()
        while not rows and parts < _PARTS:
            # So few pages have so many crawls that none of them is in the sample.
            parts = chosen["parts"] = min(_LARGER * parts, _PARTS)
            rows = connection.execute(_CRAWLS, chosen | of_classes).fetchall()
        pages = _number(connection, _PAGES, chosen)
    if not rows:
        return None
    *columns, bits, hosts, names = zip(*rows, strict=True)
    kinds = (np.int64, np.float64, np.float64, np.bool_, *[np.float64] * 3)
    crawls = Crawls(*(np.array(c, kind) for c, kind in zip(columns, kinds, strict=True)))
    sources = _by_source(np.array(bits, np.int64), np.array(names))
    return PredictedCrawls(crawls, np.array(hosts), sources, counted[1], parts / _PARTS, pages)


def _number(connection: psycopg.Connection, query: str, chosen: dict[str, Any]) -> int:
    row = connection.execute(query, chosen).fetchone()
    return int(row[0]) if row else 0


def _by_source(bits: NDArray[np.int64], stored: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    """Which crawls had a signal of which source; `stored` are the sources of their hosts."""
    found: dict[str, NDArray[np.bool_]] = {}
    for packed in np.unique(stored).tolist():
        of_hosts = stored == packed
        names = unpack_sources(packed)[:OWN_SOURCES]
        names += [OTHERS] * (SOURCES - len(names))
        for slot, name in enumerate(names):
            had = of_hosts & ((bits >> slot) & 1 > 0)
            if had.any():
                found[name] = found.get(name, np.zeros(bits.size, np.bool_)) | had
    return found
