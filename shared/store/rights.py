"""What to do where the user of the database lacks a right."""

import re
from typing import Final

import psycopg

from shared.store.connection import first_line, may_pass
from shared.store.roles import BY_SHARD, ROLES, grants

COORDINATOR: Final = "freshet_coordinator"
ESTIMATOR: Final = "freshet_estimator"
SCHEDULER: Final = "freshet_scheduler"


class NotGranted(psycopg.errors.InsufficientPrivilege):
    """A right is missing, or was taken away; the text says which, and how to give it."""

    def __init__(
        self, error: psycopg.errors.InsufficientPrivilege, role: str | None = None
    ) -> None:
        """Make it.

        Args:
            error: as the server says it.
            role: that has the right, as a migration gives it; None: not said.
        """
        said = first_line(error)
        given = _grants_for(said, role) if role in ROLES else []
        how = "; ".join([*given, "`freshet migrate` gives each role its rights"])
        super().__init__(
            f"{said}: let who owns the tables give it. {how}. The worker's user must be in its "
            "role (deploy/security.md)"
        )


def _grants_for(said: str, role: str) -> list[str]:
    """The statements that give a role what an error is about."""
    # "permission denied for table pages", in whatever language.
    words = said.split()
    parts = {table: [w for w in words if re.fullmatch(rf"{table}_\d+", w)] for table in BY_SHARD}
    return [how for names, how in grants(role, parts) if not set(words).isdisjoint(names)]


def is_waited_for(error: BaseException) -> bool:
    """Whether a worker asks a database again: it is away, or has yet to give a right. One that
    ended for that would have the next one ask."""
    return may_pass(error) or isinstance(error, psycopg.errors.InsufficientPrivilege)


def why_not(error: BaseException, role: str | None) -> BaseException:
    """The same error, with what to do where a right is missing (see `NotGranted`)."""
    if isinstance(error, psycopg.errors.InsufficientPrivilege) and not isinstance(
        error, NotGranted
    ):
        return NotGranted(error, role)
    return error


def reason_why_not(error: BaseException, role: str | None) -> str:
    """What to say of an error of the database's, in a line."""
    return first_line(why_not(error, role))
