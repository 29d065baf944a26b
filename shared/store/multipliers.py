"""The history of λ₀."""

from collections.abc import Sequence
from typing import Any

from psycopg.rows import dict_row

from shared.contracts.messages import Multipliers
from shared.store.connection import connect

_FIELDS = "version, computed_at, effective_at, multiplier, crawls_per_second, cause"


def append_multipliers(database_url: str, sent: Sequence[Multipliers]) -> None:
    """Note multipliers that were sent.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    with connect(database_url, "multipliers") as connection, connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO multiplier_history ({_FIELDS}) VALUES (%s, %s, %s, %s, %s, %s)",
            [
                (
                    message.version,
                    message.computed_at,
                    message.effective_at,
                    message.multiplier,
                    message.crawls_per_second,
                    message.cause,
                )
                for message in sent
            ],
        )


def last_multipliers(database_url: str, count: int) -> list[dict[str, Any]]:
    """The last multipliers that were noted, the newest first."""
    with (
        connect(database_url, "multipliers") as connection,
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        return cursor.execute(
            f"SELECT {_FIELDS} FROM multiplier_history ORDER BY id DESC LIMIT %s", (count,)
        ).fetchall()
