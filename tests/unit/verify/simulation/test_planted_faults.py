"""A worker with a fault in it is found out, and the same seeds pass without it."""

from contextlib import contextmanager
from unittest import mock

import pytest

import services.scheduler.flow.handler as scheduler_handler
from services.estimator import persistence
from services.verify.simulation.campaign import judge, story_of, warm_up
from services.verify.simulation.plan import Scale
from shared.runtime.clock_offset import ClockOffset
from shared.runtime.membership import Membership

MOST_SEEDS = 50

ONE_ESTIMATOR = {"estimators": 1}
"""Its commits are larger, and fewer."""


@pytest.fixture(scope="module", autouse=True)
def compiled():
    warm_up()


def positions_before_effects():
    """The positions are committed by themselves, and then the effects."""

    def commit(self, batch):
        connection = self._connected
        with connection.transaction():
            persistence.require_ownership(connection, batch.owned, self._holder)
            persistence.advance_positions(
                connection, persistence.ESTIMATOR, batch.before, batch.after
            )
        with connection.transaction():
            persistence._append(connection, batch.done, batch.recorded_at)
            persistence.note_announcing(connection, batch.announcing)
            persistence._write(connection, batch.done)

    return mock.patch.object(persistence.Store, "commit", commit)


def requests_in_flight_forgotten():
    """A shard that is loaded does not look at what was asked for before."""
    return mock.patch.object(scheduler_handler, "restore", return_value=0)


def never_in_doubt_about_its_shards():
    """A scheduler goes on though it was not heard, and its shards may be another's by now."""
    return mock.patch.object(Membership, "is_sure", property(lambda _self: True))


@contextmanager
def whoever_owned_a_shard_writes_it():
    """An estimator neither notices nor is told that its shard is another's."""
    with (
        mock.patch.object(persistence, "require_ownership", return_value=None),
        mock.patch.object(persistence.Store, "lost", return_value={}),
    ):
        yield


def by_its_own_clock():
    """A worker goes by its machine's clock, and not by the broker's."""
    return mock.patch.object(ClockOffset, "measure", mock.AsyncMock(return_value=False))


def seeds_until_caught(scale, mutate, checks, first=0):
    for seed in range(first, first + MOST_SEEDS):
        broken = set(judge(seed, scale, mutate).broken)
        if broken & checks:
            return seed, broken
    return None, set()


@pytest.mark.slow(10)
@pytest.mark.parametrize(
    ("mutate", "kinds", "checks"),
    [
        (positions_before_effects, ("kill-in-commit",), {"crawls applied", "pages"}),
        (requests_in_flight_forgotten, ("kill", "term"), {"in flight", "host limits"}),
        (never_in_doubt_about_its_shards, ("pause", "deaf"), {"slots"}),
    ],
)
def test_it_is_caught_within_fifty_seeds(mutate, kinds, checks):
    scale = Scale(kinds=kinds, **ONE_ESTIMATOR)
    seed, _ = seeds_until_caught(scale, mutate, checks)
    assert seed is not None, f"nothing found within {MOST_SEEDS} seeds"
    assert not checks & set(judge(seed, scale).broken), "without the fault the seed passes"


@pytest.mark.slow(6)
@pytest.mark.parametrize(
    ("mutate", "kinds", "checks"),
    [
        (whoever_owned_a_shard_writes_it, ("overtaken",), {"pages"}),
        (by_its_own_clock, ("clock", "kill"), {"slots"}),
    ],
)
def test_what_takes_rare_luck_is_caught_too(mutate, kinds, checks):
    scale = Scale(kinds=kinds)
    seed, _ = seeds_until_caught(scale, mutate, checks, first=10)
    assert seed is not None, f"nothing found within {MOST_SEEDS} seeds"
    assert not checks & set(judge(seed, scale).broken), "without the fault the seed passes"


@pytest.mark.slow(25)
def test_the_story_names_the_fault_that_it_takes():
    scale = Scale(kinds=("kill-in-commit", "bandwidth", "duplicate"))
    seed, _ = seeds_until_caught(scale, positions_before_effects, {"crawls applied"})
    assert seed is not None, f"nothing found within {MOST_SEEDS} seeds"
    story = story_of(seed, scale, positions_before_effects)
    faults = [line for line in story if " * " in line]
    assert len(faults) == 1
    assert "is killed within its next commit" in faults[0]
    assert any(line.startswith("broken: ") for line in story)


def test_nothing_planted_nothing_found():
    assert judge(0, Scale(kinds=())).broken == ()
