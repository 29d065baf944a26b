"""Which requests are in flight where shards were split, or have got partitions only."""

from types import SimpleNamespace

from services.scheduler.flow.recovery import partitions_of, requests_of
from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout

BEFORE, AFTER = 2, 8


def test_requests_of_before_the_split_are_in_flight_at_the_new_shard():
    layout = Layout(AFTER, BEFORE, frozenset({0}))
    assert partitions_of({0, 1, 4}, layout) == {0, 1, 4}
    assert partitions_of({5}, layout) == {1, 5}
    again = Layout(AFTER, BEFORE, frozenset(range(BEFORE))).grown_to(4 * AFTER)
    assert partitions_of({13}, again) == {1, 5, 13}
    hosts = [f"host-{number}.example" for number in range(40)]
    found = {number: [] for number in range(AFTER)}
    for host in hosts:
        for shards in (BEFORE, AFTER):
            found[shard_of(host, shards)].append(SimpleNamespace(host=host, at=shards))
    for number in (2, 4, 6):
        shard = SimpleNamespace(number=number, layout=layout)
        mine = [host for host in hosts if layout.shard_of(host) == number]
        requests = requests_of(shard, found)
        assert sorted(one.host for one in requests) == sorted(2 * mine)
        assert [one.at for one in requests] == sorted(one.at for one in requests)


def test_partitions_that_no_growth_has_added_have_no_requests_of_their_own():
    layout = Layout.of(BEFORE)
    hosts = [f"host-{number}.example" for number in range(40)]
    found = {number: [] for number in partitions_of(range(AFTER), layout)}
    for host in hosts:
        found[shard_of(host, BEFORE)].append(SimpleNamespace(host=host))
    asked = [
        len(requests_of(SimpleNamespace(number=number, layout=layout), found))
        for number in range(AFTER)
    ]
    assert sum(asked[:BEFORE]) == len(hosts)
    assert not any(asked[BEFORE:])
