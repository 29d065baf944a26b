"""A survey keeps what it has found in shards that stay as they were."""

import psycopg
import pytest

from services.estimator import surveying
from services.estimator.refitting import refit, sums_of
from services.estimator.shard import Shard
from services.estimator.surveying import Looked, Survey
from shared.contracts.identity import identify

SHARDS = 4


class World:
    """Shards of a process, and which of them its survey looks at."""

    def __init__(self):
        self.survey, self.looked = Survey("postgresql://"), []
        self.broken = set()
        self.shards = {number: shard_of(number, 1) for number in range(SHARDS)}

    def load_anew(self, number):
        self.shards[number] = shard_of(number, self.shards[number].epoch + 1)

    def look_over(self, _url, number, epoch, hosts, rests):
        rests.worked += 1.0
        if number in self.broken:
            raise psycopg.OperationalError("the server went away")
        self.looked.append(number)
        shard = Shard(number)
        shard.hosts = hosts
        nothing = surveying.Candidates(*([shard.pages["page_id"]] * 5))
        return Looked(epoch, hosts.newcomer, list(hosts.names), sums_of(shard), {}, nothing)

    async def ask(self):
        """What there is to take; until a survey that is begun has ended. And what it looked at."""
        self.looked.clear()
        taking = self.survey.taken_or_begun(self.shards)
        if self.survey._task is not None:
            await self.survey._task
        return taking, sorted(self.looked)


def shard_of(number, epoch):
    shard = Shard(number)
    shard.add_pages([(identify(f"https://h{number}.example/"), 0.0)])
    shard.epoch = epoch
    return shard


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(surveying, "look_over", world.look_over)
    return world


async def test_what_all_shards_say_is_taken_once(world):
    assert await world.ask() == (None, [0, 1, 2, 3])
    taking, looked = await world.ask()

    assert looked == []
    assert len(taking(list(world.shards.values()), 0.05)) == SHARDS
    assert await world.ask() == (None, [0, 1, 2, 3])


async def test_only_the_shard_that_was_loaded_anew_is_looked_at_again(world):
    await world.ask()
    world.load_anew(2)

    assert await world.ask() == (None, [2])
    assert (await world.ask())[0] is not None


async def test_shards_that_are_loaded_anew_one_after_the_other_keep_no_refit_away(world):
    await world.ask()
    for number in (0, 3, 1, 0):
        world.load_anew(number)
        assert await world.ask() == (None, [number])

    assert (await world.ask())[0] is not None


async def test_a_shard_that_left_is_not_waited_for_and_one_that_came_is_looked_at(world):
    await world.ask()
    del world.shards[1]
    world.shards[7] = shard_of(7, 1)

    assert await world.ask() == (None, [7])
    taking, _ = await world.ask()
    assert len(taking(list(world.shards.values()), 0.05)) == SHARDS


async def test_what_was_found_before_the_server_went_away_is_kept(world, monkeypatch):
    monkeypatch.setattr(surveying, "AGAIN_SECONDS", 0.0)
    world.broken = {0}
    assert await world.ask() == (None, [1, 2, 3])
    world.broken = set()

    assert await world.ask() == (None, [0])
    assert (await world.ask())[0] is not None
    # All that was worked for it, the look that failed too.
    assert world.survey.seconds == 5.0


async def test_what_was_found_before_another_refit_is_not_taken_after_it(world):
    await world.ask()
    refit(list(world.shards.values()), 0.05)

    assert await world.ask() == (None, [0, 1, 2, 3])
    assert world.survey.seconds == 4.0
