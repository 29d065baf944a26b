"""Which shard has a host while shards grow: a family of shards shares its parent's hosts."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout

HOSTS = st.from_regex(r"[a-z0-9]{1,12}\.example", fullmatch=True)


@given(host=HOSTS, before=st.integers(1, 64), factor=st.integers(2, 8), data=st.data())
def test_hosts_move_only_within_the_family_of_their_shard(
    host: str, before: int, factor: int, data: st.DataObject
) -> None:
    split = data.draw(st.frozensets(st.integers(0, before - 1)))
    layout = Layout(before * factor, before, split)
    old, new = shard_of(host, before), shard_of(host, before * factor)
    assert new in layout.family_of(old)
    assert layout.shard_of(host) == (new if old in split else old)
    assert layout.parent_of(layout.shard_of(host)) == old
    assert layout.modulus_of(layout.shard_of(host)) in (before, before * factor)


@given(host=HOSTS, shards=st.integers(1, 4096))
def test_without_a_growth_a_host_is_where_its_key_puts_it(host: str, shards: int) -> None:
    layout = Layout.of(shards)
    assert layout.shard_of(host) == shard_of(host, shards)
    assert not layout.is_growing
    assert all(layout.modulus_of(shard) == shards for shard in range(min(shards, 8)))


def test_of_several_growths_each_splits_what_came_of_the_one_before() -> None:
    layout = Layout.of(8)
    assert layout.counts == (8,)
    for shards, counts in ((16, (8, 16)), (64, (8, 16, 64)), (128, (8, 16, 64, 128))):
        layout = layout.grown_to(shards)
        assert layout.counts == counts
        assert layout.to_split == counts[-2]
        layout = replace(layout, split=frozenset(range(counts[-2])))
    assert layout.ancestors_of(75) == [3, 11, 75]
    assert layout.ancestors_of(3) == [3]


@given(host=HOSTS, factors=st.lists(st.integers(2, 4), min_size=1, max_size=4))
def test_what_was_sent_before_any_growth_is_near(host: str, factors: list[int]) -> None:
    layout, sent_to = Layout.of(3), {shard_of(host, 3)}
    for factor in factors:
        layout = replace(layout, split=frozenset(range(layout.grown_from)))
        layout = layout.grown_to(factor * layout.shards)
        sent_to.add(shard_of(host, layout.shards))
        assert layout.places_of(host) == sent_to
        assert set(layout.ancestors_of(shard_of(host, layout.shards))) == sent_to
        assert all(layout.is_near(host, partition) for partition in sent_to)
        assert not layout.is_near(host, (shard_of(host, 3) + 1) % 3)


def test_a_growth_ends_with_the_last_split() -> None:
    assert Layout(8, 2, frozenset({0})).is_growing
    assert not Layout(8, 2, frozenset({0, 1})).is_growing
    assert list(Layout(8, 2, frozenset()).family_of(1)) == [1, 3, 5, 7]
    assert Layout(8, 2, frozenset({0})).modulus_of(3) == 0
    assert Layout(8, 2, frozenset({0})).modulus_of(2) == 8
