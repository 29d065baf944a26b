"""One of several databases stops the shards that it has, and nobody else's."""

import asyncio

import psycopg
import pytest

from services.scheduler.flow.away import Away
from shared.contracts.databases import Databases
from shared.store import looking
from shared.store.deployment import StoreMismatch
from shared.store.looking import Looking

HOME = "postgresql://a/pages"
TWO = Databases.parse(f"0-1={HOME},2-3=postgresql://b/pages")


async def loaded(error=None):
    if error is not None:
        raise error
    return {("page-signals", 0): 7}


AWAY = [psycopg.OperationalError("gone"), StoreMismatch("no tables")]
NO_RIGHT = psycopg.errors.InsufficientPrivilege("permission denied for table hosts")


@pytest.mark.parametrize("error", [*AWAY, NO_RIGHT])
async def test_shards_of_a_database_that_is_away_or_being_restored_wait_alone(error):
    away = Away(TWO)
    assert await away.unless_away(TWO.of(2), {2, 3}, loaded(error)) == {}
    assert await away.unless_away(TWO.home, {0, 1}, loaded())
    assert away.absent() == {2, 3}
    assert away.trouble.startswith(f"shards 2-3/4 cannot be loaded: {error}")
    assert ("GRANT SELECT ON hosts TO freshet_scheduler;" in away.trouble) == (error is NO_RIGHT)
    assert await away.unless_away(TWO.of(2), {2, 3}, loaded())
    assert (away.absent(), away.trouble) == (set(), None)


@pytest.mark.parametrize("error", AWAY)
async def test_the_only_database_is_one_to_stop_for(error):
    alone = Databases.alone(HOME)
    with pytest.raises(type(error)):
        await Away(alone).unless_away(alone.home, {0}, loaded(error))


async def test_who_looks_at_a_database_that_is_being_restored_looks_again(monkeypatch):
    faults = [psycopg.errors.UndefinedTable("pages"), StoreMismatch("no tables")]
    stopping, connections = asyncio.Event(), []

    class Connection:
        broken = False

        def close(self):
            connections.append("closed")

    def connect(*_arguments, **_options):
        connections.append("made")
        return Connection()

    async def turn():
        assert some.connection is not None
        if faults:
            raise faults.pop()
        stopping.set()

    monkeypatch.setattr(looking, "connect", connect)
    some = Looking(HOME, "imports")
    await some.run(turn, 0.0, stopping)
    assert connections == ["made", "closed"] * 3
