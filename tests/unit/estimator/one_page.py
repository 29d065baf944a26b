"""A shard with one page, to which events happen."""

import numpy as np

from services.estimator.columns import EventColumns, UpdateColumns
from services.estimator.effects import apply_events, apply_updates
from services.estimator.shard import Shard
from shared.contracts.identity import identify
from shared.store.class_numbers import AS_IT_IS

DAY = 86_400.0


def one_page():
    shard = Shard(0)
    shard.add_pages([(identify("https://a.example/"), 0.0)])
    return shard


def apply(shard, columns, delay=0.0):
    tables = shard.hosts.tables
    return apply_events(shard.pages, shard.rings, shard.by_source, tables, columns, delay)


def play(shard, *events, delay=0.0):
    """Apply (time, kind[, digest[, slot]]) to page 0; the verdicts."""
    columns = EventColumns(
        np.zeros(len(events), np.int64),
        np.array([event[0] for event in events], np.float64),
        np.array([event[1] for event in events], np.int8),
        np.array([event[2] if len(event) > 2 else 0 for event in events], np.int64),
        np.array([event[3] if len(event) > 3 else 0 for event in events], np.int8),
    )
    return apply_events(
        shard.pages, shard.rings, shard.by_source, shard.hosts.tables, columns, delay
    )


def update(
    shard,
    time,
    operation,
    importance=np.nan,
    max_age_days=np.nan,
    crawled_at=-np.inf,
    urgent=False,
    page_class=AS_IT_IS,
    delay=0.0,
):
    values = (importance, max_age_days, crawled_at, urgent, page_class)
    columns = (np.array([value]) for value in values)
    return apply_updates(
        shard.pages,
        shard.rings,
        shard.by_source,
        UpdateColumns(np.array([0]), np.array([time]), np.array([operation], np.int8), *columns),
        delay,
    )[0]
