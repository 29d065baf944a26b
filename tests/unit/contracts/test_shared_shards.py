"""Which database has which shards, as the setting says it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.databases import Databases
from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout

A, B, C = (f"postgresql://user:hidden@{name}/freshet" for name in "abc")


def test_each_range_of_shards_has_its_database_and_that_of_shard_0_is_the_home():
    databases = Databases.parse(f"0-127={A},128-255={B}")

    assert databases.home.url == A
    assert [databases.of(shard).url for shard in (0, 127, 128, 255)] == [A, A, B, B]
    assert [one.held for one in databases.each] == ["0-127/256", "128-255/256"]
    assert databases.are_several


def test_in_whatever_order_they_are_written_the_home_is_the_same():
    entries = [f"0={A}", f"1-2={B}", f"3={A}", f"4={C}"]
    for order in itertools.permutations(entries):
        databases = Databases.parse(",".join(order))

        assert databases == Databases.parse(",".join(entries))
        assert [one.url for one in databases.each] == [A, B, C]


def test_a_shard_that_comes_by_a_growth_is_where_its_parent_is():
    databases = Databases.parse(f"0-1={A},2-3={B}")

    for grown in (8, 12, 64):
        layout = Layout(grown, 4, frozenset(range(4)))
        for parent in range(4):
            assert {databases.of(n) for n in layout.family_of(parent)} == {databases.of(parent)}


@given(st.text(min_size=1), st.sampled_from([1, 2, 3, 16]))
def test_a_hosts_database_is_that_of_its_shard_however_many_there_are(host, times):
    databases = Databases.parse(f"0-2={A} 3={B} 4-5={C}")

    assert databases.of_host(host) == databases.of(shard_of(host, 6 * times))


def test_urls_may_name_several_servers_and_have_parameters():
    url = "postgresql://a,b:5433/freshet?target_session_attrs=read-write&options=-c,x=1"
    databases = Databases.parse(f"0={url},\n 1-1={B}\n")

    assert [one.url for one in databases.each] == [url, B]


def test_a_database_may_have_several_ranges():
    databases = Databases.parse(f"0-1={A},2-3={B},4={A}")

    assert [one.held for one in databases.each] == ["0-1,4-4/5", "2-3/5"]
    assert databases.shared(range(5)) == {
        databases.home: {0, 1, 4},
        databases.of(2): {2, 3},
    }


def test_one_database_that_has_all_is_as_if_nothing_was_said():
    assert Databases.parse(f"0-3={A}").home == Databases.alone(A).home
    assert not Databases.alone(A).are_several


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (A, "must begin with shards"),
        ("", "must begin with shards"),
        (f"{A},0-1={A}", "must begin with shards"),
        (f"0-1={A},1-2={B}", "shard 1 is in two ranges"),
        (f"0-1={A},3={B}", "no range has shard 2"),
        (f"1-2={A}", "no range has shard 0"),
        (f"2-1={A}", "range 2-1 ends before it begins"),
        (f"0-4096={A}", "goes beyond 4096 shards"),
        (f"0=,1={B}", "range 0 needs a URL"),
        ("0=host=a user=b,1=host=b", "range 0 needs a URL"),
        (f"0={A} and more", "range 0 needs a URL"),
        (f"0-={A}", "must begin with shards"),
        (f"0-1={A},2-={B}", "what follows the URL of range 0-1"),
        (f"0-1={A};2-3={B}", "what follows the URL of range 0-1"),
        (f"0-1={A},2..3={B}", "what follows the URL of range 0-1"),
    ],
)
def test_what_is_wrong_is_said_and_no_secret_with_it(text, said):
    with pytest.raises(ValueError, match=said) as caught:
        Databases.parse(text)
    assert "hidden" not in str(caught.value)


def test_a_database_does_not_show_its_password():
    assert "hidden" not in repr(Databases.parse(f"0={A},1={B}"))


def test_what_each_database_knows_of_a_growth_is_the_whole_together():
    databases = Databases.parse(f"0-1={A},2-3={B}")
    begun, split = Layout(8, 4, frozenset()), Layout(8, 4, frozenset({0, 1}))

    def whole(*layouts):
        return databases.layout_of_all(dict(zip(databases.each, layouts, strict=True)))

    assert whole(split, Layout(8, 4, frozenset({3}))) == Layout(8, 4, frozenset({0, 1, 3}))
    # One does not know of the growth yet, and one has one behind it that others have, too.
    assert whole(Layout.of(4), begun) == begun
    assert whole(split, Layout(4, 2, frozenset({0, 1}))) == split
    assert whole(Layout.of(4), Layout.of(4)) == Layout.of(4)
    # One was restored as it was before, or amid the growth, and the other believes it to be split.
    over = Layout(8, 4, frozenset(range(4)))
    assert whole(over, Layout.of(4)) == whole(over, begun) == split
    # It grows to as many at once as the other has by two growths.
    twice = Layout(16, 8, frozenset(range(8)), (4,))
    assert whole(twice, Layout(16, 4, frozenset())).split == {0, 1, 4, 5}
    assert whole(twice, Layout(16, 4, frozenset({2, 3}))) == twice
