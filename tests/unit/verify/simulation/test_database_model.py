"""The model of PostgreSQL: all of a transaction or nothing, and what a client can know of it."""

import asyncio
from random import Random

import psycopg
import pytest

from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import OUTSIDE, Process
from services.verify.simulation.store.database import CUT_SECONDS, Database
from services.verify.simulation.store.statements import Connection, Statements
from shared.store.connection import LOCK_SECONDS, SILENT_SECONDS
from shared.store.positions import ESTIMATOR, Superseded

PLACE = ("crawl-outcomes", 0)


class Server:
    def __init__(self):
        self.loop = VirtualLoop(Random(1))
        self.database = Database(self.loop, Random(2), 0.0)
        self.database.kill = self.kill
        self.statements = Statements(self.database)

    def kill(self, process):
        self.loop.kill(process)
        self.database.forget(process)

    def run(self, main):
        task = self.loop.create_task(main, context=OUTSIDE.context())
        try:
            return self.loop.run_until_complete(task)
        finally:
            self.loop.end()

    def writer(self, name):
        return Writer(self, Process(name))

    @property
    def position(self):
        return self.database.positions.get((ESTIMATOR, *PLACE), 0)


class Writer:
    """A process that moves a position on, as the estimator's store does."""

    def __init__(self, server, process):
        self.server, self.process = server, process

    def advance(self, before, after):
        return self.server.loop.create_task(
            self._advance(before, after), context=self.process.context()
        )

    async def _advance(self, before, after):
        await asyncio.to_thread(self._work, before, after)

    def _work(self, before, after):
        connection = Connection(self.server.database)
        with connection.transaction():
            self.server.statements.advance_positions(
                connection, ESTIMATOR, {PLACE: before}, {PLACE: after}
            )


def test_a_writer_that_was_overtaken_is_told_so():
    server = Server()

    async def main():
        await server.writer("a").advance(0, 5)
        with pytest.raises(Superseded):
            await server.writer("b").advance(0, 7)
        await server.writer("b").advance(5, 7)

    server.run(main())
    assert server.position == 7


async def paused_in_its_commit(server, writing, process):
    """Let a writer stand still: its statements are done, its commit is not."""
    while not server.database._open:
        await asyncio.sleep(0.0001)
    server.loop.pause(process)
    return writing


def test_what_a_paused_writer_has_locked_is_waited_for_a_while():
    server = Server()

    async def main():
        slow = server.writer("slow")
        first = slow.advance(0, 5)
        await paused_in_its_commit(server, first, slow.process)
        began = server.loop.now
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await server.writer("next").advance(0, 7)
        waited = server.loop.now - began
        assert server.position == 0
        server.loop.resume(slow.process)
        await first
        with pytest.raises(Superseded):
            await server.writer("next").advance(0, 7)
        return waited

    assert server.run(main()) == pytest.approx(LOCK_SECONDS, abs=0.2)
    assert server.position == 5


def test_a_writer_that_is_silent_for_too_long_is_given_up():
    server = Server()

    async def main():
        slow = server.writer("slow")
        first = slow.advance(0, 5)
        await paused_in_its_commit(server, first, slow.process)
        await asyncio.sleep(SILENT_SECONDS)
        await server.writer("next").advance(0, 7)
        server.loop.resume(slow.process)
        with pytest.raises(psycopg.OperationalError):
            await first

    server.run(main())
    assert server.position == 7


def test_whoever_read_a_shard_before_its_new_owner_commits_nothing_more():
    server = Server()

    def own(holder):
        with Connection(server.database) as connection:
            return server.statements._owners.raise_epochs(connection, [0], holder)

    def check(owned, holder):
        with Connection(server.database) as connection:
            server.statements._owners.require_ownership(connection, owned, holder)

    async def main():
        first = await asyncio.to_thread(own, "a")
        await asyncio.to_thread(check, first, "a")
        second = await asyncio.to_thread(own, "b")
        assert second[0] > first[0]
        await asyncio.to_thread(check, second, "b")
        for owned, holder in ((first, "a"), (second, "a")):
            with pytest.raises(Superseded):
                await asyncio.to_thread(check, owned, holder)

    server.run(main())


def test_the_first_note_of_which_topic_is_meant_stands():
    server = Server()

    def note(topic_id):
        owners = server.statements._owners
        with Connection(server.database) as connection:
            owners.note_topics(connection, {"page-signals": topic_id})
            return owners.read_topics(connection)

    async def main():
        first = await asyncio.to_thread(note, "one")
        return first, await asyncio.to_thread(note, "other")

    assert server.run(main()) == ({"page-signals": "one"}, {"page-signals": "one"})


@pytest.mark.parametrize(("place", "position"), [("before", 0), ("amid", 0), ("after", 5)])
def test_a_writer_that_is_killed_has_committed_all_or_nothing_and_holds_no_lock(place, position):
    server = Server()

    async def main():
        killed = server.writer("a")
        server.database.kill_at["a"] = place
        killed.advance(0, 5)
        await asyncio.sleep(1.0)
        assert killed.process.is_dead
        assert server.position == position
        await server.writer("b").advance(position, 9)

    server.run(main())
    assert server.position == 9


def test_an_answer_may_be_lost_although_the_commit_came_through():
    server = Server()

    async def main():
        writing = server.writer("a").advance(0, 5)
        while not server.position:
            await asyncio.sleep(0.00002)
        server.database.cut("a")
        with pytest.raises(psycopg.OperationalError):
            await writing

    server.run(main())
    assert server.position == 5


def test_a_server_that_goes_down_forgets_what_was_not_committed():
    server = Server()

    async def main():
        writing = server.writer("a").advance(0, 5)
        while not server.database._open:
            await asyncio.sleep(0.0001)
        server.database.stop()
        with pytest.raises(psycopg.OperationalError):
            await writing
        with pytest.raises(psycopg.OperationalError):
            await server.writer("b").advance(0, 6)
        server.database.start()
        await server.writer("b").advance(0, 6)

    server.run(main())
    assert server.position == 6


def test_whoever_is_cut_off_waits_and_then_learns_that_the_connection_is_lost():
    server = Server()

    async def main():
        server.database.cut("a")
        began = server.loop.now
        with pytest.raises(psycopg.OperationalError):
            await server.writer("a").advance(0, 5)
        return server.loop.now - began

    assert server.run(main()) >= CUT_SECONDS
    assert server.position == 0
