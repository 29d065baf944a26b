"""Stripes: who gets which partitions, and what moves when there are more of them."""

import uuid
from random import Random

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from shared.runtime.striped import FormerAssignor, StripedAssignor, stripes


def cluster(**partitions):
    """What a client knows."""
    made = ClusterMetadata()
    made._partitions = {
        topic.replace("_", "-"): dict.fromkeys(range(count)) for topic, count in partitions.items()
    }
    return made


def shared(known, **members):
    """Member → topic → partitions, as the members are told."""
    assignor = StripedAssignor()
    given = assignor.assign(
        known, {name: assignor.metadata(topics) for name, topics in members.items()}
    )
    told = {
        name: ConsumerProtocolMemberAssignment.decode(each.encode()) for name, each in given.items()
    }
    return {name: dict(each.assignment) for name, each in told.items()}, told


def test_a_partition_of_every_topic_goes_to_the_same_member():
    given, _ = shared(cluster(a=7, b=7), x=["a", "b"], y=["b", "a"], z=["a", "b"])
    assert given == {
        "x": {"a": [0, 3, 6], "b": [0, 3, 6]},
        "y": {"a": [1, 4], "b": [1, 4]},
        "z": {"a": [2, 5], "b": [2, 5]},
    }


@pytest.mark.parametrize("seed", range(20))
def test_all_are_given_away_once_and_nothing_moves_when_some_are_added(seed):
    random = Random(seed)
    before = random.randint(1, 40)
    after = before * random.randint(2, 4)
    members = [f"worker-{number}-{uuid.UUID(int=random.getrandbits(128))}" for number in range(7)]
    members = random.sample(members, random.randint(1, 7))
    old, new = stripes(members, before), stripes(members, after)
    assert sorted(number for part in new.values() for number in part) == list(range(after))
    for member in members:
        assert [number for number in new[member] if number < before] == list(old[member])
    sizes = [len(part) for part in new.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_new_life_of_a_member_has_its_partitions(seed):
    random = Random(seed)

    def lives():
        names = ["a", "a-b", "a-b-c", "b"]
        return [f"{name}-{uuid.UUID(int=random.getrandbits(128))}" for name in names]

    def by_name(members):
        given = stripes(random.sample(members, len(members)), 12)
        return [given[member] for member in members]

    assert by_name(lives()) == by_name(lives())


def test_a_partition_that_a_topic_does_not_have_yet_is_nobodys():
    given, told = shared(cluster(a=8, b=2), x=["a", "b"], y=["a", "b"])
    assert given == {"x": {"a": [0], "b": [0]}, "y": {"a": [1], "b": [1]}}
    assert {each.user_data for each in told.values()} == {b"2"}


def test_a_topic_that_is_not_known_just_now_takes_nothing_away():
    given, _ = shared(cluster(a=2), x=["a", "b"], y=["a", "b"])
    assert given == {"x": {"a": [0]}, "y": {"a": [1]}}
    given, _ = shared(cluster(), x=["a"])
    assert given == {"x": {}}


def test_a_member_of_another_version_has_its_part_of_what_it_reads():
    given, _ = shared(cluster(a=4, new=4), x=["a", "new"], y=["a"])
    assert given == {"x": {"a": [0, 2], "new": [0, 2]}, "y": {"a": [1, 3]}}


def test_a_member_says_the_same_of_itself_each_time():
    assignor = StripedAssignor()
    assert assignor.metadata({"b", "a"}).encode() == assignor.metadata(["b", "a"]).encode()
    read = ConsumerProtocolMemberMetadata.decode(assignor.metadata({"b", "a"}).encode())
    assert read.subscription == ["a", "b"]


def test_a_member_is_told_how_many_partitions_were_shared():
    assignor = StripedAssignor()
    _, told = shared(cluster(a=6), x=["a"])
    assignor.on_assignment(told["x"])
    assert assignor.shared == 6
    FormerAssignor(assignor).on_assignment(told["x"])
    assert assignor.shared is None
    assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [], b""))
    assert assignor.shared is None, "a member that joined while the others were sharing"
