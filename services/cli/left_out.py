"""What an answer leaves out, as one of several databases is away."""

from collections.abc import Mapping

from services.cli.errors import SystemFailed, without_password
from shared.contracts.databases import Database


def require_all(away: Mapping[Database, str]) -> None:
    """End a command that has shown what could be shown, and say what is missing.

    Args:
        away: databases whose shards are left out, and why.

    Raises:
        SystemFailed: there are some.
    """
    if away:
        raise SystemFailed(
            "; ".join(
                f"shards {database.held} are left out: their database at "
                f"{without_password(database.url)} is away: {why}"
                for database, why in away.items()
            )
        )
