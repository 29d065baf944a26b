"""What was removed before a shard was loaded stays away, whatever is read again afterwards."""

import numpy as np
from reference_shard import rules, url_of

from services.scheduler.flow.loading import build_shard
from services.scheduler.state.rows import NEVER
from shared.contracts.messages import PageUpdate
from shared.store.binary import Blobs
from shared.store.columns import (
    HostColumns,
    PageColumns,
    RemovedPages,
    SignalsBySource,
    host_rules,
)
from shared.store.history import SOURCES
from shared.store.hosts import HostLearning
from shared.store.removals import Removals
from shared.store.snapshot import ShardSnapshot

NOW = 1.7e9
PAGE, OTHER = url_of("a", 1), url_of("a", 2)


def removed(*pages):
    ordered = sorted(pages, key=lambda page: page.page_id)
    ids = np.array([page.page_id for page in ordered], np.int64)
    return RemovedPages(ids, np.full(ids.size, NOW))


def loaded(gone):
    """A shard of which the database has nothing but pages that were removed."""
    none, ids = np.empty(0), np.empty(0, np.int64)
    columns = dict.fromkeys(PageColumns.__dataclass_fields__, none)
    whole = dict.fromkeys(("page_ids", "host_ids", "digest", "signal_count"), ids)
    hosts = HostColumns(ids, [], host_rules(0), none, none, none, [], HostLearning.initial(0), [])
    snapshot = ShardSnapshot(
        shard=0,
        pages=PageColumns(**columns | whole),
        pending=np.empty((0, SOURCES), np.uint16),
        multipliers=np.empty(0, np.float32),
        urls=Blobs(np.empty(0, np.uint8), np.zeros(1, np.int64)),
        hosts=hosts,
        positions={},
        last_sources=np.empty(0, np.int8),
        by_source=SignalsBySource.none(),
        removed=gone,
    )
    return build_shard(snapshot, rules())


def upsert(shard, page, at):
    return shard.upsert(page, PageUpdate("upsert", page.url), at)


def test_a_page_that_was_removed_before_loading_stays_away_from_older_updates():
    shard = loaded(removed(PAGE))
    assert not upsert(shard, PAGE, NOW - 1)
    assert upsert(shard, OTHER, NOW - 1)
    assert shard.count == 1
    assert upsert(shard, PAGE, NOW + 1)
    assert shard.count == 2


def test_a_removal_that_is_read_again_is_the_same_and_a_newer_one_counts():
    shard = loaded(removed(PAGE, OTHER))
    assert not shard.remove(PAGE.page_id, NOW)
    assert not shard.remove(PAGE.page_id, NOW + 5)
    assert not upsert(shard, PAGE, NOW + 4)
    assert not upsert(shard, OTHER, NOW - 1)
    assert upsert(shard, OTHER, NOW + 4)


def test_of_pages_that_never_were_nothing_is_kept():
    removals = Removals()
    removals.load(removed(PAGE), {})
    removals.note_again(OTHER.page_id, NOW)
    assert removals.of_page(OTHER.page_id) == NEVER
    removals.note_again(PAGE.page_id, NOW - 9)
    assert removals.of_page(PAGE.page_id) == NOW
