"""A shard that is loaded in one pass, by several threads, is to the bit what it is column by
column."""

import numpy as np
import pytest
from reference_loading import rows_of

from services.scheduler.flow import loading
from services.scheduler.flow.loading import _load_hosts, build_shard
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rules import ClassRules, PickingRules, ShardRules
from shared.contracts.identity import host_id_of, page_id_of
from shared.contracts.layout import ALONE
from shared.policy.estimation.page_factors import ACTIVITY_BINS
from shared.policy.estimation.quiet_pages import QuietPages
from shared.store import row_threads
from shared.store.columns import HostColumns, PageColumns, SignalsBySource, host_rules
from shared.store.history import SOURCES
from shared.store.host_factors import NO_FACTORS, HostFactors
from shared.store.hosts import HostLearning
from shared.store.page_parts import DamagedStore, PlacedUrls
from shared.store.page_status import GONE, NEVER
from shared.store.snapshot import ShardSnapshot

NOW, HOSTS = 1.7e9, 40
RULES = ShardRules(
    PickingRules(120.0, 1.0), 0.0, 300.0, 9.0, 1.0, (ClassRules("of weight", 3.0, 0.0, 0),)
)


def some_hosts(random):
    names = sorted((f"host-{number}.example" for number in range(HOSTS)), key=host_id_of)
    known = HostFactors(
        random.uniform(0.5, 2.0, ACTIVITY_BINS),
        np.sort(random.choice(65_536, 3, replace=False)).astype(np.uint16),
        random.uniform(0.5, 2.0, 3),
    )
    learning = HostLearning.initial(HOSTS)
    learning.multipliers[:] = random.uniform(0.1, 8.0, learning.multipliers.shape)
    learning.source_evidence[:] = random.uniform(0.1, 3.0, learning.source_evidence.shape)
    return HostColumns(
        np.array([host_id_of(name) for name in names]),
        names,
        host_rules(HOSTS),
        np.full(HOSTS, NEVER),
        random.uniform(0.1, 2.0, HOSTS),
        random.uniform(1.0, 90.0, HOSTS),
        [["a", "b", "c"][: number % 4] for number in range(HOSTS)],
        learning,
        [known if number % 3 else NO_FACTORS for number in range(HOSTS)],
        QuietPages(
            random.uniform(0.0, 5.0, HOSTS),
            random.uniform(0.0, 5.0, HOSTS),
            random.uniform(0.2, 1.0, HOSTS),
        ),
    )


def mostly(random, usual, others, kind=np.float64):
    """A column in which half of the pages are as usual."""
    return np.where(random.random(others.size) < 0.5, usual, others).astype(kind)


def some_world(seed, count):
    """A snapshot whose pages differ in every column."""
    random = np.random.default_rng(seed)
    hosts = some_hosts(random)
    of_hosts = random.integers(0, HOSTS, count)
    urls = [
        f"https://{hosts.names[host]}/{number % 7}/{'ä' * (number % 3)}{number}?q=/{number}"
        for number, host in enumerate(of_hosts)
    ]
    order = np.argsort([page_id_of(url) for url in urls])
    texts = [urls[place].encode() for place in order]
    crawled_at = mostly(random, NEVER, NOW - random.random(count) * 3e7)
    failures = mostly(random, 0, random.integers(0, 9, count), np.int32)
    attempted_at = np.where(failures > 0, NOW - random.random(count) * 1e6, crawled_at)
    signal_at = mostly(random, NEVER, NOW - random.random(count) * 1e7)
    pages = PageColumns(
        np.array([page_id_of(urls[place]) for place in order]),
        hosts.host_ids[of_hosts[order]],
        random.lognormal(size=count),
        mostly(random, np.inf, random.uniform(0.5, 90.0, count)),
        mostly(random, np.nan, random.lognormal(size=count)),
        mostly(random, np.nan, random.lognormal(size=count)),
        mostly(random, 0.0, random.lognormal(size=count)),
        crawled_at,
        attempted_at,
        mostly(random, NEVER, crawled_at - random.random(count) * 2e7),
        signal_at,
        mostly(random, NEVER, NOW - random.random(count) * 1e8),
        mostly(random, NEVER, NOW - random.random(count) * 1e8),
        failures,
        mostly(random, 0, random.integers(0, 4, count), np.int16),
        mostly(random, 0, random.integers(-(1 << 62), 1 << 62, count), np.int64),
        mostly(random, 0, np.full(count, GONE), np.int16),
        mostly(random, 0, random.integers(0, 100, count), np.int64),
        mostly(random, 0, random.integers(0, 3, count), np.int16),
    )
    several = np.flatnonzero((signal_at > NEVER) & (random.random(count) < 0.3))
    return ShardSnapshot(
        shard=0,
        pages=pages,
        pending=random.integers(0, 5, (count, SOURCES)).astype(np.uint16),
        multipliers=mostly(random, 1.0, random.uniform(0.1, 8.0, count), np.float32),
        urls=PlacedUrls.of(texts),
        hosts=hosts,
        positions={},
        last_sources=random.integers(0, SOURCES, count).astype(np.int8),
        by_source=SignalsBySource(
            several, random.integers(0, 1 << 20, (several.size, SOURCES)).astype(np.uint32)
        ),
        layout=ALONE,
        classes={1: "of weight", 2: "another"},
    )


def plain(snapshot):
    """A shard with the hosts and classes of a snapshot, and its rows made column by column."""
    shard = make_shard(0, RULES, snapshot.pages.page_ids.size)
    _load_hosts(shard, snapshot)
    shard.classes.load(snapshot.classes, snapshot.pages.page_class)
    return rows_of(snapshot, shard)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("at_once", [7, 64, row_threads.ROWS_AT_ONCE])
def test_rows_are_those_that_come_column_by_column(seed, at_once, monkeypatch):
    snapshot = some_world(seed, count=500)
    expected = plain(snapshot)
    monkeypatch.setattr(row_threads.in_slices, "__defaults__", (at_once,))
    monkeypatch.setattr(loading, "_load_failures", lambda *_: None)
    monkeypatch.setattr(loading, "_load_urgent", lambda *_: None)
    shard = build_shard(snapshot, RULES)
    for mine, other in zip((shard.pages, shard.records), expected, strict=False):
        assert mine[: shard.used].tobytes() == other.tobytes()
    assert shard.hosts.rows.tobytes() == expected[2].tobytes()
    ids = snapshot.pages.page_ids
    assert shard.rows_of(ids).tolist() == list(range(ids.size))
    latest = snapshot.pages.last_signal_at
    for row in np.setdiff1d(np.arange(ids.size), snapshot.by_source.rows):
        assert shard.signal_times.of(row) == pytest.approx(latest[row], abs=0.01)


def test_columns_of_which_all_pages_have_the_same_number_are_like_others():
    snapshot = some_world(3, count=300)
    pages = snapshot.pages
    alike = {"max_age_days": np.inf, "page_class": 0, "unsignalled_change_rate": np.nan}
    shards = []
    for make in (np.full, lambda count, value, kind: np.broadcast_to(kind(value), (count,))):
        given = {name: getattr(pages, name) for name in pages.__slots__}
        for name, value in alike.items():
            given[name] = make(pages.page_ids.size, value, given[name].dtype.type)
        snapshot = type(snapshot)(
            **{name: getattr(snapshot, name) for name in snapshot.__slots__}
            | {"pages": PageColumns(**given)}
        )
        shards.append(build_shard(snapshot, RULES))
    one, other = shards
    assert one.pages[: one.used].tobytes() == other.pages[: other.used].tobytes()
    assert one.records[: one.used].tobytes() == other.records[: other.used].tobytes()


def test_a_page_of_a_host_that_is_not_there_is_damage():
    snapshot = some_world(1, count=20)
    snapshot.pages.host_ids[7] += 1
    with pytest.raises(DamagedStore, match="hosts"):
        build_shard(snapshot, RULES)


def test_hosts_that_are_well_again_are_not_blamed_for_failures_of_before():
    """They come late: a shard that was loaded goes on as one that was not."""
    snapshot = some_world(1, count=20)
    rules = snapshot.hosts.rules
    rules["failed_at"][3], rules["failed_at"][4], rules["failures"][4] = NOW, NOW, 2
    shard = build_shard(snapshot, RULES)
    for time, counted in ((NOW - 1.0, False), (NOW + 1.0, True)):
        for host in (3, 4):
            shard.note_reached(host, -1, time, NOW + 2.0)
            assert (host in shard.hosts.failing) == (counted or host == 4)
    assert shard.hosts.change_rules(3).failures == 1
    assert shard.hosts.change_rules(4).failures == 3
