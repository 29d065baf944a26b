"""A member of a group is sure of its partitions only as long as the broker has heard it."""

import time as clock
from types import SimpleNamespace

import pytest
from aiokafka.errors import (
    IllegalGenerationError,
    NodeNotReadyError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.group import SyncGroupRequest, SyncGroupRequest_v0

from shared.runtime.membership import SURE_SHARE, Membership


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Coordinator:
    """As much of aiokafka's as beats, and asks."""

    group_id, member_id, _group_instance_id = "group", "member", None

    def __init__(self, time: Time) -> None:
        self.time = time
        self.generation = 4
        self.answers = True
        self.takes_seconds = 0.0
        self.error: int | type[Exception] = 0
        self.asked: list[tuple[str, int, str]] = []

    async def _do_heartbeat(self) -> bool:
        self.time.now += self.takes_seconds
        return self.answers

    async def _send_req(self, request: SyncGroupRequest) -> SimpleNamespace:
        question = request.build(SyncGroupRequest_v0)
        self.asked.append((question.group, question.generation_id, question.member_id))
        if isinstance(self.error, int):
            return SimpleNamespace(error_code=self.error)
        raise self.error


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


def test_time_that_the_machine_sleeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may have been given the partitions meanwhile."""
    membership, slept, look = Membership(10.0), [0.0], clock.clock_gettime

    def asleep(which: int) -> float:
        return look(which) + (slept[0] if which == clock.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(clock, "clock_gettime", asleep)
    membership.watch(SimpleNamespace(_coordinator=Coordinator(Time())))
    membership.joined()
    assert membership.is_sure
    slept[0] = 60.0
    assert not membership.is_sure


async def test_an_answered_heartbeat_renews(membership: Membership, time: Time) -> None:
    coordinator = watched(membership, time)
    membership.joined()
    time.now += 60.0

    assert await coordinator._do_heartbeat()

    assert membership.is_sure


async def test_that_nobody_was_sure_for_a_while_is_noted_until_somebody_knows(
    membership: Membership, time: Time
) -> None:
    coordinator = watched(membership, time)
    membership.joined()
    membership.was_unsure = False
    time.now += 10.0 * SURE_SHARE - 0.01
    assert await coordinator._do_heartbeat()
    assert not membership.was_unsure
    time.now += 10.0 * SURE_SHARE + 0.01
    assert await coordinator._do_heartbeat()
    assert membership.was_unsure
    assert await coordinator._do_heartbeat()
    assert membership.was_unsure


async def test_a_heartbeat_without_an_answer_renews_nothing(
    membership: Membership, time: Time
) -> None:
    coordinator = watched(membership, time)
    coordinator.answers = False

    assert not await coordinator._do_heartbeat()

    assert not membership.is_sure


@pytest.mark.parametrize(
    "error",
    [
        RebalanceInProgressError.errno,  # which a broker says as well while it reads its groups
        UnknownMemberIdError.errno,
        IllegalGenerationError.errno,
        NodeNotReadyError,
    ],
)
async def test_a_yes_of_a_broker_that_does_not_know_the_group_yet_renews_nothing(
    membership: Membership, time: Time, error: int | type[Exception]
) -> None:
    coordinator = watched(membership, time)
    coordinator.error = error

    assert await coordinator._do_heartbeat()

    assert not membership.is_sure
    assert coordinator.asked == [("group", 4, "member")]


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
