"""Page ids to rows, URLs to places: the same as dictionaries would say."""

import numpy as np
import pytest

from services.scheduler.state.url_arena import UrlArena
from shared.store.page_lookup import UNKNOWN, PageLookup
from shared.store.page_parts import PlacedUrls


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
    given = PlacedUrls.of([b"start", b"end"])
    arena = UrlArena.load(given.arena, given.begins, given.lengths, 2)
    for row, url in enumerate(urls, start=2):
        arena.set(row, url)
    assert arena.get_many(np.arange(4)) == ["start", "end", urls[0].decode(), urls[1].decode()]
    full = arena.size
    for row in range(2, 502):
        if row % 7:
            arena.forget(row)
    assert arena.size < full / 2
    kept = [row for row in range(2, 502) if row % 7 == 0]
    assert arena.get_many(kept) == [urls[row - 2].decode() for row in kept]
    assert arena.get(0) == "start"
    arena.set(1, b"again")
    assert arena.get(1) == "again"


@pytest.mark.parametrize(("others", "is_copied"), [(7, False), (8, True)])
def test_urls_of_others_are_dropped_from_the_arena_if_they_are_more_than_half(others, is_copied):
    data = np.frombuffer(b"start" + b"-" * others + b"end\n", np.uint8).copy()
    starts, lengths = np.array([0, 5 + others]), np.array([5, 3], np.int32)
    arena = UrlArena.load(data, starts, lengths, 2)
    assert arena.get_many([0, 1]) == ["start", "end"]
    assert arena.size == (8 if is_copied else data.size)
    arena.set(2, b"https://a.example/")
    assert arena.get_many([0, 1, 2]) == ["start", "end", "https://a.example/"]
