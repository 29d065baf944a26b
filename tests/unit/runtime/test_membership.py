"""A member of a group is sure of its partitions only as long as the broker has heard it."""

from types import SimpleNamespace

import pytest

from shared.runtime.membership import SURE_SHARE, Membership


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Coordinator:
    """As much of aiokafka's as beats."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.generation = 4
        self.answers = True
        self.takes_seconds = 0.0

    async def _do_heartbeat(self) -> bool:
        self.time.now += self.takes_seconds
        return self.answers


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def membership(time: Time) -> Membership:
    return Membership(10.0, time)


def watched(membership: Membership, time: Time) -> Coordinator:
    coordinator = Coordinator(time)
    membership.watch(SimpleNamespace(_coordinator=coordinator))
    return coordinator


def test_nothing_is_sure_before_the_group_has_decided(membership: Membership) -> None:
    assert not membership.is_sure


def test_what_was_given_is_sure_for_a_part_of_the_session(
    membership: Membership, time: Time
) -> None:
    watched(membership, time)
    membership.joined()
    time.now += 10.0 * SURE_SHARE - 0.01
    assert membership.is_sure
    time.now += 0.02
    assert not membership.is_sure


async def test_an_answered_heartbeat_renews(membership: Membership, time: Time) -> None:
    coordinator = watched(membership, time)
    membership.joined()
    time.now += 60.0

    assert await coordinator._do_heartbeat()

    assert membership.is_sure


async def test_a_heartbeat_without_an_answer_renews_nothing(
    membership: Membership, time: Time
) -> None:
    coordinator = watched(membership, time)
    coordinator.answers = False

    assert not await coordinator._do_heartbeat()

    assert not membership.is_sure


async def test_a_heartbeat_counts_from_when_it_was_sent(membership: Membership, time: Time) -> None:
    coordinator = watched(membership, time)
    coordinator.takes_seconds = 9.0

    await coordinator._do_heartbeat()

    assert not membership.is_sure


async def test_a_member_that_was_thrown_out_is_not_sure(membership: Membership, time: Time) -> None:
    coordinator = watched(membership, time)
    membership.joined()
    await coordinator._do_heartbeat()

    coordinator.generation = -1

    assert not membership.is_sure


@pytest.mark.parametrize(
    ("later", "ours_all_along"), [(4, True), (5, True), (6, False), (1, False)]
)
def test_a_decision_that_was_missed_shows_by_its_number(
    membership: Membership, time: Time, later: int, ours_all_along: bool
) -> None:
    coordinator = watched(membership, time)
    membership.joined()

    coordinator.generation = later

    assert membership.joined() == ours_all_along
