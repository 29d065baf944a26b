"""A worker's way to rows that are few: a connection for each question, in threads of its own."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

import psycopg
import structlog

from shared.contracts.databases import Database, Databases
from shared.store.connection import connect
from shared.store.deployment import StoreMismatch, require_schema
from shared.store.rights import why_not

log = structlog.get_logger(__name__)

THREADS: Final = 4

P = ParamSpec("P")
T = TypeVar("T")


class Questions:
    """Asks the database."""

    def __init__(self, database_url: str, role: str) -> None:
        """Make it.

        Args:
            database_url: libpq URL.
            role: who asks, as seen in `pg_stat_activity`.
        """
        self._database_url = database_url
        self._role = role
        # Of its own: a database that hangs must not keep others waiting for a thread.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="questions")

    async def ask(
        self,
        question: Callable[Concatenate[psycopg.Connection, P], T],
        *arguments: P.args,
        **more: P.kwargs,
    ) -> T:
        """The answer of a function that takes a connection, which commits by itself.

        Raises:
            psycopg.Error: the database is away, refuses, is of an older version, or has no tables
                yet, as while it is restored; as `NotGranted`, where a right is missing.
        """

        def work() -> T:
            with connect(self._database_url, self._role, autocommit=True) as connection:
                try:
                    require_schema(connection)
                    return question(connection, *arguments, **more)
                except StoreMismatch as error:
                    raise psycopg.OperationalError(str(error)) from error
                except psycopg.errors.InsufficientPrivilege as error:
                    raise why_not(error, f"freshet_{self._role}") from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def stop(self) -> None:
        """Ask nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class SharedQuestions:
    """Asks the database that has what is asked about."""

    def __init__(self, databases: Databases, role: str) -> None:
        """Make it.

        Args:
            databases: all of them.
            role: who asks, as seen in `pg_stat_activity`.
        """
        self._databases = databases
        self._each = {database: Questions(database.url, role) for database in databases.each}

    @property
    def home(self) -> Questions:
        """Of what is not of a single shard."""
        return self._each[self._databases.home]

    def of_shard(self, shard: int) -> Questions:
        """Of what is of a shard."""
        return self._each[self._databases.of(shard)]

    def by_host(
        self, some: Iterable[T], host_of: Callable[[T], str]
    ) -> list[tuple[Questions, list[T]]]:
        """Those of some things that each database is to be asked about, by their hosts."""
        found: dict[Database, list[T]] = {}
        for one in some:
            found.setdefault(self._databases.of_host(host_of(one)), []).append(one)
        return [(self._each[database], part) for database, part in found.items()]

    def stop(self) -> None:
        """Ask nothing more."""
        for questions in self._each.values():
            questions.stop()


async def take_turns(
    turn: Callable[[], Awaitable[None]],
    seconds: float,
    waiting: str,
    *,
    stopping: asyncio.Event | None = None,
    passing: tuple[type[Exception], ...] = (psycopg.Error,),
) -> None:
    """Do something again and again; where the database is away, the next turn asks it.

    Args:
        turn: what is done.
        seconds: between the end of one turn and the next.
        waiting: is logged once each time that the database is away, or refuses.
        stopping: ends it between two turns; None: nothing does.
        passing: what is waited for; anything else is raised.
    """
    stopping = stopping or asyncio.Event()
    is_away = False
    while not stopping.is_set():
        try:
            await turn()
            is_away = False
        except passing as error:
            # What else the worker does goes on, whatever is wrong here.
            if not is_away:
                log.warning(waiting, error=str(error).strip())
            is_away = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), seconds)
