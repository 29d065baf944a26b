"""What was removed before a shard was loaded stays away, whatever is read again afterwards."""

import numpy as np
from aiokafka import ConsumerRecord
from reference_shard import rules, url_of

from services.scheduler.flow.loading import build_shard
from services.scheduler.flow.reader import Reader
from services.scheduler.state.erasing import erase_host
from services.scheduler.state.rows import NEVER
from shared.contracts.codec import encode
from shared.contracts.layout import ALONE
from shared.contracts.messages import HostLimit, HostParameters, PageUpdate
from shared.discovery.updates import BEHIND_SECONDS, found_page
from shared.policy.estimation.bursts import AGE_BINS
from shared.policy.estimation.quiet_pages import QuietPages
from shared.rules.host_rules import HostRules
from shared.runtime.acceptance import Acceptance
from shared.store import removals as stored_removals
from shared.store.columns import (
    HostColumns,
    PageColumns,
    RemovedPages,
    SignalsBySource,
    host_rules,
)
from shared.store.erasing import KEPT_SECONDS
from shared.store.history import SOURCES
from shared.store.hosts import HostLearning
from shared.store.page_parts import PlacedUrls
from shared.store.removals import Removals
from shared.store.snapshot import ShardSnapshot

NOW = 1.7e9
PAGE, OTHER, LATER = url_of("a", 1), url_of("a", 2), url_of("a", 3)


def removed(*pages):
    ordered = sorted(pages, key=lambda page: page.page_id)
    ids = np.array([page.page_id for page in ordered], np.int64)
    return RemovedPages(ids, np.full(ids.size, NOW))


def loaded(gone, erased=RemovedPages.none()):  # noqa: B008
    """A shard of which the database has nothing but pages that were removed, or erased."""
    none, ids = np.empty(0), np.empty(0, np.int64)
    columns = dict.fromkeys(PageColumns.__dataclass_fields__, none)
    whole = dict.fromkeys(("page_ids", "host_ids", "digest", "signal_count", "page_class"), ids)
    nothing = [], HostLearning.initial(0), [], QuietPages.initial(0)
    hosts = HostColumns(ids, [], host_rules(0), none, none, none, *nothing)
    snapshot = ShardSnapshot(
        shard=0,
        pages=PageColumns(**columns | whole),
        pending=np.empty((0, SOURCES), np.uint16),
        multipliers=np.empty(0, np.float32),
        urls=PlacedUrls.of([]),
        hosts=hosts,
        positions={},
        last_sources=np.empty(0, np.int8),
        by_source=SignalsBySource.none(),
        layout=ALONE,
        removed=gone,
        erased=erased,
    )
    return build_shard(snapshot, rules())


def upsert(shard, page, at):
    return shard.upsert(page, PageUpdate("upsert", page.url), at)


def test_a_page_that_was_removed_before_loading_stays_away_from_older_updates():
    shard = loaded(removed(PAGE), removed(LATER))
    assert not upsert(shard, PAGE, NOW - 1)
    assert not upsert(shard, LATER, NOW - 1)
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


def test_pages_that_were_erased_and_removed_go_by_the_last_of_both():
    removals = Removals()
    earlier = RemovedPages(removed(PAGE).page_ids, np.array([NOW - 9]))
    removals.load(earlier, {}, removed(PAGE, OTHER))
    assert removals.of_page(PAGE.page_id) == removals.of_page(OTHER.page_id) == NOW


def test_many_removals_are_kept_all_the_same(monkeypatch):
    monkeypatch.setattr(stored_removals, "_MOST_NOTED", 4)
    removals = Removals()
    removals.load(removed(PAGE), {})
    for number in range(10):
        removals.note(url_of("b", number).page_id, NOW + number)
    times = [removals.of_page(url_of("b", number).page_id) for number in range(10)]
    assert times == [NOW + number for number in range(10)]
    assert removals.of(PAGE) == NOW


def noted(removals, letter, at, **said):
    """Four pages that are removed; a function that says which of them are still known to be."""
    pages = [url_of(letter, number).page_id for number in range(4)]
    for page_id in pages:
        removals.note(page_id, at, **said)
    return lambda: [page_id for page_id in pages if removals.of_page(page_id) > NEVER]


def test_what_is_erased_is_forgotten_when_the_database_forgets_it_and_what_it_keeps_is_not(
    monkeypatch,
):
    monkeypatch.setattr(stored_removals, "_MOST_NOTED", 4)
    removals = Removals()
    removals.load(removed(PAGE), {}, removed(OTHER))
    removals.note_host("old.example", NOW)
    erased, kept = noted(removals, "b", NOW), noted(removals, "c", NOW, for_good=False)
    noted(removals, "d", NOW + KEPT_SECONDS)
    assert len(erased()) == len(kept()) == 4
    assert removals.of_page(PAGE.page_id) == removals.of_host("old.example") == NOW
    purged = url_of("c", 1).page_id
    removals.note(purged, NOW + 60)
    removals.note_host("new.example", NOW + KEPT_SECONDS)
    # Some more, with which what is old is looked for.
    noted(removals, "e", NOW + KEPT_SECONDS + 9)
    assert erased() == []
    assert len(kept()) == 4
    assert removals.of_page(PAGE.page_id) == removals.of_host("old.example") == NEVER
    assert removals.of_page(OTHER.page_id) == NOW
    assert removals.of_host("new.example") == NOW + KEPT_SECONDS
    # A page that was removed and then erased is kept no longer than others.
    noted(removals, "f", NOW + 2 * KEPT_SECONDS)
    assert removals.of_page(purged) == NEVER
    assert len(kept()) == 3


def test_a_page_that_an_update_erases_is_forgotten_in_time_and_one_that_it_removes_is_not(
    monkeypatch,
):
    monkeypatch.setattr(stored_removals, "_MOST_NOTED", 1)
    shard = loaded(removed())
    later = NOW + KEPT_SECONDS + 9
    reader = Reader(Acceptance(now=later, latest=later, record_times_count=True))
    for page, at, for_good in ((PAGE, NOW, True), (OTHER, NOW, False), (LATER, later, True)):
        upsert(shard, page, NOW - 9)
        gone = PageUpdate("remove", page.url, updated_at=at, for_good=for_good)
        reader.apply(shard, "page-updates", [record_of("page-updates", gone, page.host, at)])
    assert not upsert(shard, OTHER, NOW - 1)
    assert not upsert(shard, LATER, NOW - 1)
    assert upsert(shard, PAGE, NOW - 1)


def test_a_host_that_is_erased_keeps_nothing_but_what_is_newer():
    shard = loaded(removed())
    pages = [url_of("a", number) for number in range(5)]
    for page in (*pages, url_of("b", 1)):
        upsert(shard, page, NOW - 1)
    upsert(shard, pages[0], NOW + 1)
    host = pages[0].host
    shard.limit_host(host, 0.25, NOW + 99, NOW)
    shard.host_parameters([parameters(host)])
    erase_host(shard, host, NOW)
    assert [shard.row_of(page.page_id) >= 0 for page in pages] == [True, *[False] * 4]
    assert shard.row_of(url_of("b", 1).page_id) >= 0
    row, fresh = shard.hosts.find(host), shard.hosts.intern("new.example")
    for name in ("rate", "blocked_until", "own_limit", "is_paced"):
        assert shard.hosts.rows[row][name] == shard.hosts.rows[fresh][name]
    for column in shard.hosts.learned.tables[:4]:
        assert np.array_equal(column[row], column[fresh])
    # Pages that were known, and one that was not.
    for page in (*pages[1:], url_of("a", 77)):
        assert not upsert(shard, page, NOW - 1)
        assert upsert(shard, page, NOW + 1)


def test_what_was_said_of_a_host_after_it_was_erased_stays_whatever_is_read_first():
    """Topics are read independently of each other: limits may be ahead of updates."""
    host = PAGE.host
    ruled, erased = (
        HostLimit(host, 0.25, NOW + 999),
        PageUpdate("remove", PAGE.url, updated_at=NOW, for_good=True, whole_host=True),
    )
    for first in (0, 1):
        shard = loaded(removed())
        reader = Reader(Acceptance(now=NOW + 99, latest=NOW + 99, record_times_count=True))
        upsert(shard, PAGE, NOW - 9)
        shard.host_parameters([parameters(host)])
        read = [
            lambda shard=shard, reader=reader: reader.apply(
                shard, "host-limits", [record_of("host-limits", ruled, host, NOW + 50)]
            ),
            lambda shard=shard, reader=reader: reader.apply(
                shard, "page-updates", [record_of("page-updates", erased, host, NOW)]
            ),
        ]
        read[first]()
        read[1 - first]()
        row = shard.hosts.rows[shard.hosts.find(host)]
        assert (row["rate"], row["blocked_until"]) == (0.25, NOW + 999)
        assert shard.row_of(PAGE.page_id) == -1
        assert shard.hosts.learned.tables.alpha[shard.hosts.find(host)] != 3.0


def test_a_rule_that_was_loaded_stays_if_it_is_newer_than_an_erasure_that_is_read_later():
    for said_at, is_kept in ((NOW + 1, True), (NOW - 1, False)):
        shard = loaded(removed())
        upsert(shard, PAGE, NOW - 9)
        host = shard.hosts.find(PAGE.host)
        fresh = float(shard.hosts.rows[host]["rate"])
        shard.hosts.load_rules(host, HostRules(limit=0.25, failures=7, failed_at=NOW), said_at)
        erase_host(shard, PAGE.host, NOW)
        row = shard.hosts.rows[host]
        assert row["rate"] == (0.25 if is_kept else fresh)
        assert not shard.hosts.failing, "what was learned of it is forgotten in any case"
        assert row["blocked_until"] == NEVER


def parameters(host):
    return HostParameters(
        host=host,
        unsignalled_change_rate=3.0,
        signal_evidence=2.0,
        sources=["cms"],
        source_evidence=[2.0] * SOURCES,
        burst_multipliers=[2.0] * AGE_BINS,
        updated_at=NOW - 1,
    )


def record_of(topic, message, host, at):
    value = None if message is None else encode(message)
    return ConsumerRecord(topic, 0, 0, int(1000 * at), 1, host.encode(), value, None, 0, 0, ())


def test_what_is_under_way_of_a_host_that_is_erased_is_left_out():
    shard = loaded(removed())
    shard.loaded_epoch = 0
    host = PAGE.host
    upsert(shard, PAGE, NOW - 1)
    acceptance = Acceptance(now=NOW + 9, latest=NOW + 9, record_times_count=True)
    reader = Reader(acceptance)
    gone = PageUpdate("remove", PAGE.url, updated_at=NOW, for_good=True, whole_host=True)
    reader.apply(shard, "page-updates", [record_of("page-updates", gone, host, NOW)])
    assert shard.row_of(PAGE.page_id) < 0
    rates = shard.hosts.rows["rate"].copy()
    alpha = shard.hosts.learned.tables.alpha.copy()
    limit = record_of("host-limits", HostLimit(host, 0.25), host, NOW - 1)
    reader.apply(shard, "host-limits", [limit])
    learned = record_of("host-parameters", parameters(host), host, NOW)
    reader.apply(shard, "host-parameters", [learned])
    assert np.array_equal(shard.hosts.rows["rate"], rates)
    assert np.array_equal(shard.hosts.learned.tables.alpha, alpha)
    late = record_of("host-limits", HostLimit(host, 0.25), host, NOW + 1)
    reader.apply(shard, "host-limits", [late])
    assert shard.hosts.rows[shard.hosts.find(host)]["rate"] == 0.25


def test_a_link_that_is_found_just_after_a_removal_does_not_bring_the_page_back():
    # Whoever found it did not know of the removal, unless estimators were up to date.
    shard = loaded(removed(PAGE))
    for found_at, comes_back in ((NOW + 60, False), (NOW + BEHIND_SECONDS + 1, True)):
        update = found_page(PAGE, found_at)
        assert shard.upsert(PAGE, update, update.updated_at) == comes_back
