"""What the workers hold of the database: a connection and its transaction, on the model."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import psycopg

from services.verify.simulation.store.database import Database, Transaction
from shared.store.connection import LOCK_SECONDS

HURRY_SECONDS = 0.2
"""A lock is waited for so long, where the estimator says that others wait."""


class _Adapters:
    def register_dumper(self, *_: Any) -> None:
        """There is nothing to convert."""


class Connection:
    """As psycopg's: used by itself, or as a context that is one transaction."""

    def __init__(self, database: Database, *, autocommit: bool = False) -> None:
        database.check()
        self.database = database
        self.autocommit = autocommit
        self.adapters = _Adapters()
        self.at_hand: Transaction | None = None
        self._is_closed = False
        self._is_broken = False
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        if not self.autocommit:
            self._entered.enter_context(self.transaction())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._entered.__exit__(kind, error, trace)
        finally:
            self.close()

    @property
    def broken(self) -> bool:
        """Whether it was lost."""
        return self._is_broken

    def close(self) -> None:
        """Disconnect."""
        self._is_closed = True

    def require(self) -> None:
        """Get through to the server.

        Raises:
            psycopg.OperationalError: it is away, or the connection was lost.
        """
        if self._is_broken or self._is_closed:
            raise psycopg.OperationalError("the connection is closed")
        try:
            self.database.check()
        except BaseException:
            self._is_broken = True
            raise

    def execute(self, statement: str) -> None:
        """A setting for the rest of the transaction.

        Raises:
            NotImplementedError: any other statement; its function needs a twin.
        """
        if not statement.startswith("SET LOCAL "):
            raise NotImplementedError(statement)
        if "lock_timeout" in statement:
            self.mine.patience = HURRY_SECONDS

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, as psycopg's.

        Raises:
            psycopg.OperationalError: the server is away.
        """
        if self._is_broken or self._is_closed:
            raise psycopg.OperationalError("the connection is closed")
        try:
            mine = self.at_hand = self.database.begin(LOCK_SECONDS)
        except psycopg.OperationalError:
            self._is_broken = True
            raise
        try:
            yield
            self.database.check()
        except BaseException as error:
            self.database.roll_back(mine)
            self._is_broken = self._is_broken or _is_lost(error)
            raise
        finally:
            self.at_hand = None
        self.database.end(mine)

    @property
    def mine(self) -> Transaction:
        """The transaction at hand.

        Raises:
            psycopg.ProgrammingError: there is none.
        """
        if self.at_hand is None:
            raise psycopg.ProgrammingError("no transaction")
        return self.at_hand


def _is_lost(error: BaseException) -> bool:
    """Whether a connection does not work any more after an error."""
    passes = isinstance(error, psycopg.errors.LockNotAvailable)
    return isinstance(error, psycopg.OperationalError) and not passes
