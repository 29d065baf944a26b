"""What to do where the user of the database lacks a right."""

from typing import Final

import psycopg

from shared.store.connection import first_line
from shared.store.roles import ROLES

SCHEDULER: Final = "freshet_scheduler"


class NotGranted(Exception):
    """A right is missing, or was taken away; the text says which, and how to give it."""

    def __init__(
        self, error: psycopg.errors.InsufficientPrivilege, role: str | None = None
    ) -> None:
        """Make it.

        Args:
            error: as the server says it.
            role: that has the right, as a migration gives it; None: not said.
        """
        said, given = first_line(error), ROLES[role] if role is not None else {}
        # "permission denied for table pages", in whatever language.
        grants = [
            f"GRANT {privileges} ON {table} TO {role}"
            for table, privileges in given.items()
            if table in said.split()
        ]
        how = "; ".join([*grants, "`freshet migrate` gives each role its rights"])
        super().__init__(
            f"{said}: let who owns the tables give it. {how}. The worker's user must be in its "
            "role (deploy/security.md)"
        )
