"""Which shard has a host while shards grow: a family of shards shares its parent's hosts."""

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


def test_a_growth_ends_with_the_last_split() -> None:
    assert Layout(8, 2, frozenset({0})).is_growing
    assert not Layout(8, 2, frozenset({0, 1})).is_growing
    assert list(Layout(8, 2, frozenset()).family_of(1)) == [1, 3, 5, 7]
    assert Layout(8, 2, frozenset({0})).modulus_of(3) == 0
    assert Layout(8, 2, frozenset({0})).modulus_of(2) == 8
