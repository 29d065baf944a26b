"""URLs stay where they were received; their pages know where."""

import numpy as np
import pytest

from shared.store.directories import directory_of
from shared.store.page_parts import END_OF_URL, DamagedStore, UrlsOfPart, placed_urls

SHARD = 3


def received(urls, parts, random):
    """URLs by page ids as the server sends them, in any order: bytes, and what is in each part."""
    arena, found = b"", []
    for ids in np.array_split(random.permutation(list(urls)), parts):
        sent = b"".join(urls[page_id].encode() + END_OF_URL for page_id in ids.tolist())
        found.append(UrlsOfPart.of(SHARD, ids.astype(np.int64), sent, len(arena)))
        arena += sent
    return np.frombuffer(arena, np.uint8), found


@pytest.fixture
def stored():
    random = np.random.default_rng(5)
    ids = random.choice(1 << 62, 700, replace=False).tolist()
    return random, {n: f"https://é.example/{n % 9}/{'x' * (n % 40)}?{n}" for n in ids}


@pytest.mark.parametrize("parts", [1, 40])
def test_every_page_finds_its_own_among_those_of_others(stored, parts):
    random, urls = stored
    arena, found = received(urls, parts, random)
    wanted = np.sort(list(urls)[:500])

    placed = placed_urls(SHARD, found, arena, wanted)

    assert placed.arena is arena
    for row, page_id in enumerate(wanted.tolist()):
        begin = placed.begins[row]
        url = placed.arena[begin : begin + placed.lengths[row]].tobytes().decode()
        assert url == urls[page_id]
        assert placed.directories[row] == directory_of(url)


def test_a_page_without_one_is_damage(stored):
    random, urls = stored
    arena, found = received(urls, 3, random)
    wanted = np.sort([*urls, 7])
    with pytest.raises(DamagedStore, match="shard 3: pages have no row in page_urls"):
        placed_urls(SHARD, found, arena, wanted)


def test_an_end_of_line_within_one_is_damage():
    with pytest.raises(DamagedStore, match="shard 3: a URL in page_urls has an end of line in it"):
        UrlsOfPart.of(SHARD, np.array([1]), b"https://a.example/\nb\n")
