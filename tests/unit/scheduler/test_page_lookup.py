"""Page ids to rows, URLs to places: the same as dictionaries would say."""

import numpy as np

from services.scheduler.urls import UrlArena
from shared.store.page_lookup import UNKNOWN, PageLookup


def test_the_lookup_is_a_dictionary():
    rng = np.random.default_rng(3)
    lookup, known = PageLookup(), {}
    # Ids that share their low bits, so that they get in each other's way.
    ids = [int(n) << 8 for n in rng.integers(0, 400, 4000)] + rng.integers(0, 2**62, 4000).tolist()
    for step, page_id in enumerate(ids):
        if page_id in known and rng.random() < 0.5:
            lookup.remove(page_id)
            del known[page_id]
        elif page_id not in known:
            lookup.add(page_id, step)
            known[page_id] = step
    wanted = np.array(ids, np.int64)
    found = lookup.find_many(wanted)
    assert found.tolist() == [known.get(page_id, UNKNOWN) for page_id in ids]
    assert lookup.find(ids[0]) == known.get(ids[0], UNKNOWN)


def test_many_ids_are_added_at_once():
    lookup = PageLookup()
    ids = np.arange(10_000, dtype=np.int64) * 977
    lookup.add_many(ids, np.arange(10_000, dtype=np.int32))
    assert np.array_equal(lookup.find_many(ids), np.arange(10_000))
    assert lookup.find(5) == UNKNOWN


def test_removing_what_is_not_there_does_nothing():
    lookup = PageLookup()
    lookup.add(7, 1)
    lookup.remove(8)
    assert lookup.find(7) == 1


def test_the_arena_keeps_urls_and_drops_the_forgotten():
    urls = [f"https://a.example/{'x' * (number % 50)}/{number}".encode() for number in range(500)]
    arena = UrlArena(np.frombuffer(b"start", np.uint8))
    starts = np.array([arena.add(url) for url in urls])
    lengths = np.array([len(url) for url in urls], np.int32)
    assert arena.get(0, 5) == b"start"
    assert [arena.get(s, n) for s, n in zip(starts, lengths, strict=True)] == urls
    smaller, moved = arena.compact(starts[::7], lengths[::7])
    assert smaller.size == sum(map(len, urls[::7]))
    assert smaller.get_many(moved, lengths[::7]) == [url.decode() for url in urls[::7]]
    empty, _ = arena.compact(starts[:0], lengths[:0])
    assert empty.size == 0
