"""A shard that grows: every page is found, and no call moves more than it adds calls for."""

import numpy as np
from reference_shard import DAY, rules

from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rows import clear
from shared.contracts.identity import PageIdentity
from shared.contracts.messages import PageUpdate
from shared.store.growing_table import MOVES
from shared.store.page_lookup import UNKNOWN, PageLookup
from shared.store.reserved import FEW, grown, reserved

NOW = 1.7e9


def random_ids(rng, count):
    return np.unique(rng.integers(0, 1 << 63, count, dtype=np.int64))


def test_pages_are_found_over_many_growths_and_each_call_moves_few():
    rng = np.random.default_rng(1)
    ids = rng.permutation(random_ids(rng, 60_000))
    lookup = PageLookup()
    begin, growths, is_moving = 0, 0, False
    while begin < ids.size:
        batch = ids[begin : begin + int(rng.integers(1, 200))]
        before = lookup.moved
        lookup.add_many(batch, np.arange(begin, begin + batch.size, dtype=np.int32))
        moved = lookup.moved - before
        assert moved <= 2 * MOVES * batch.size
        growths += moved > 0 and not is_moving
        is_moving = moved > 0
        begin += batch.size
        some = rng.integers(0, begin, 50)
        assert np.array_equal(lookup.find_many(ids[some]), some)
        assert (lookup.find_many(ids[begin:][:50]) == UNKNOWN).all()
    assert growths >= 5
    assert np.array_equal(lookup.find_many(ids), np.arange(ids.size))


def test_pages_that_come_and_go_are_found_while_entries_move():
    rng = np.random.default_rng(2)
    ids = random_ids(rng, 4_000)
    lookup, known = PageLookup(), {}
    free = list(range(ids.size))
    for step, page_id in enumerate(rng.choice(ids, 30_000).tolist()):
        before = lookup.moved
        if page_id in known:
            lookup.remove(page_id)
            free.append(known.pop(page_id))
        else:
            known[page_id] = free.pop()
            lookup.add(page_id, known[page_id])
        assert lookup.moved - before <= 2 * MOVES
        if step % 500 == 0:
            expected = [known.get(page_id, UNKNOWN) for page_id in ids.tolist()]
            assert lookup.find_many(ids).tolist() == expected


def test_loaded_pages_need_no_table_and_give_their_rows_to_others():
    rng = np.random.default_rng(3)
    ids = random_ids(rng, 20_000)
    lookup = PageLookup()
    lookup.add_many(ids, np.arange(ids.size, dtype=np.int32))
    assert lookup.nbytes < 8.6 * ids.size + 1000
    known = dict(zip(ids.tolist(), range(ids.size), strict=True))
    others = np.setdiff1d(random_ids(rng, 8_000), ids)
    for page_id, other in zip(rng.permutation(ids)[: others.size].tolist(), others, strict=True):
        lookup.remove(page_id)
        row = known.pop(page_id)
        if rng.random() < 0.8:
            known[int(other)] = row
            lookup.add(int(other), row)
    wanted = np.concatenate([ids, others])
    assert lookup.find_many(wanted).tolist() == [known.get(i, UNKNOWN) for i in wanted.tolist()]
    assert lookup.find(-1) == UNKNOWN


def test_rows_are_not_copied_once_there_are_many():
    few, many = reserved(FEW, np.int32), reserved(FEW + 1, np.float64, (2,))
    assert few.size == FEW
    assert many.shape[0] > 1000 * FEW
    many[-1] = 1.0
    assert not many[:-1][:: 1 << 20].any()
    larger = grown(few + 7, FEW + 1)
    assert (larger[:FEW] == 7).all()
    assert not larger[FEW : 2 * FEW].any()


def test_where_addresses_are_scarce_there_is_room_for_what_is_needed():
    assert reserved(FEW + 1, np.uint8, wanted=1 << 62).size >= FEW + 1


def test_a_shard_grows_beyond_what_is_copied_and_keeps_its_pages():
    shard = make_shard(0, rules(host_rate=1e6), FEW - 1000)
    rng = np.random.default_rng(4)
    pages = [
        PageIdentity(f"https://h.example/{number}", "h.example", int(page_id))
        for number, page_id in enumerate(rng.permutation(random_ids(rng, 3_000)))
    ]
    # As if the shard had been loaded with pages that are gone since.
    shard.used = FEW - 1500
    clear(shard.pages[: shard.used], shard.records[: shard.used])
    before = shard.pages
    for number, page in enumerate(pages):
        update = PageUpdate("upsert", page.url, crawled_at=NOW - number * DAY)
        assert shard.upsert(page, update, NOW)
        if number == len(pages) // 2:
            shard.selector.select(np.array([NOW]), 1.0, 0.0)
            large = shard.pages
            assert large is not before
    assert shard.pages is large
    rows = shard.rows_of(np.array([page.page_id for page in pages]))
    assert np.array_equal(rows, np.arange(FEW - 1500, FEW - 1500 + len(pages)))
    crawled_at = NOW - DAY * np.arange(len(pages))
    assert np.array_equal(shard.pages["last_crawled_at"][rows], crawled_at)
    assert [shard.url_of(row) for row in rows] == [page.url for page in pages]
    oldest = shard.selector.select(NOW + np.arange(1, 100) / 10, 10.0, 0.0)["row"]
    assert set(oldest) <= set(rows[len(pages) // 2 :])
