"""The history of λ₀ and of the shards' shares: every decision, and why it was made."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from psycopg.rows import dict_row

from shared.contracts.messages import Multipliers
from shared.store.connection import WORKING, Limits, connect

PRUNED_AT_ONCE = 5_000
"""Old decisions that one call of `prune_multipliers` looks at."""

_PRUNE = """
DELETE FROM multiplier_history WHERE computed_at < %(before)s AND id = ANY(ARRAY(
    SELECT id FROM multiplier_history
    WHERE computed_at <= (SELECT computed_at FROM multiplier_history ORDER BY id DESC LIMIT 1)
    ORDER BY id LIMIT %(most)s))
"""
"""The oldest by number first: the rest of the table is never looked at. Those of a clock that was
ahead, later than the newest decision of all, are passed by: none behind them would ever go."""

_PLAIN = (
    "version, computed_at, effective_at, multiplier, crawls_per_second, cause, why, epoch, leader, "
    "ramp_to, ramp_seconds, achieved_crawls_per_second, achieved_ratio, live_shards, "
    "slot_value"
)


class Decided(NamedTuple):
    """A decision that was published, and how things stood."""

    message: Multipliers
    achieved_crawls_per_second: float
    """What the shards reported together."""
    achieved_ratio: float
    """To the slots of the budget that they had."""
    live_shards: int
    slot_value: float | None = None
    """λ*: what a slot is worth now; None: not known."""


Row = tuple[Any, ...]
"""A decision as the table has it: of a thousand shards a tenth of what the message takes."""


def append_multipliers(database_url: str, rows: Sequence[Row]) -> None:
    """Note multipliers that were sent, each as `row_of` has it.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    places = ", ".join(["%s"] * (_PLAIN.count(",") + 3))
    with connect(database_url, "multipliers") as connection, connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO multiplier_history ({_PLAIN}, shards, shares) VALUES ({places})",
            rows,
        )


def row_of(decided: Decided) -> Row:
    """What is noted of a decision."""
    message = decided.message
    given = [a for a in message.allotments if a.share > 0]
    return (
        message.version,
        message.computed_at,
        message.effective_at,
        message.multiplier,
        message.crawls_per_second,
        message.cause,
        message.why,
        message.epoch,
        message.leader,
        message.ramp_to,
        message.ramp_seconds,
        decided.achieved_crawls_per_second,
        decided.achieved_ratio,
        decided.live_shards,
        decided.slot_value,
        np.array([a.shard for a in given], np.int16),
        np.array([a.share for a in given], np.float32),
    )


def last_multipliers(
    database_url: str, count: int, causes: Sequence[str] = (), limits: Limits = WORKING
) -> list[dict[str, Any]]:
    """The last multipliers that were noted, the newest first.

    Args:
        database_url: libpq URL.
        count: how many.
        causes: only those of these causes; none: all.
        limits: of the session.

    Returns:
        a dict each, with the columns' names; `shares` is a dict of the shards' shares, None where a
        version that did not note them made the decision.
    """
    where = "WHERE cause = ANY(%s) " if causes else ""
    parameters = (list(causes), count) if causes else (count,)
    with (
        connect(database_url, "multipliers", limits=limits) as connection,
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        rows = cursor.execute(
            f"SELECT {_PLAIN}, shards::int4[] AS shards, shares::float8[] AS shares "
            f"FROM multiplier_history {where}ORDER BY id DESC LIMIT %s",
            parameters,
        ).fetchall()
    for row in rows:
        shards, shares = row.pop("shards"), row["shares"]
        row["shares"] = (
            None
            if shards is None
            else {int(n): float(share) for n, share in zip(shards, shares, strict=True)}
        )
    return rows


def prune_multipliers(database_url: str, before: float) -> int:
    """Forget old decisions, no more than `PRUNED_AT_ONCE` in a call.

    Args:
        database_url: libpq URL.
        before: clock time, Unix seconds, of the oldest decisions that stay.

    Returns:
        how many were forgotten.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses.
    """
    given = {"before": before, "most": PRUNED_AT_ONCE}
    with connect(database_url, "multipliers") as connection:
        return connection.execute(_PRUNE, given).rowcount
