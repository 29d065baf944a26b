"""WebSub subscriptions: what is wanted of which hub, and until when it is granted.

Each has a row. Several receivers may look at them: who takes a row that is due moves it on at once,
and the others pass it by.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

WANTED: Final = "wanted"
"""The hub has been, or is to be, asked; it has not confirmed yet."""

ACTIVE: Final = "active"
UNWANTED: Final = "unwanted"
"""It is to be told so; then the row goes."""

REFUSED: Final = "refused"
"""The hub does not want to; it is asked again now and then."""

STATES: Final = (WANTED, ACTIVE, UNWANTED, REFUSED)

_COLUMNS: Final = (
    "id, topic, wanted_hub, hub, hub_topic, secret, state, reason, attempts, lease_ends"
)


class Subscription(NamedTuple):
    """A row."""

    id: str
    """The last part of the address where its hub calls: nobody else knows it."""
    topic: str
    """As it was asked for."""
    wanted_hub: str | None
    """By an operator; None: the topic says which is its hub."""
    hub: str
    """That was asked last, or where that one has moved to for good; empty: none was."""
    hub_topic: str
    """What the hub calls the topic."""
    secret: str
    state: str
    reason: str
    """Why it is not active, if it is not."""
    attempts: int
    """Since it was last confirmed."""
    lease_ends: float
    """Unix seconds; −infinity: it was never granted."""


def add_subscription(
    connection: psycopg.Connection, new_id: str, topic: str, hub: str | None, secret: str
) -> bool:
    """Want a topic; also one that is not wanted any more, and is not gone yet.

    Returns:
        whether it was not wanted before.
    """
    found = connection.execute(
        "INSERT INTO websub_subscriptions (id, topic, wanted_hub, secret, state) "
        "VALUES (%(id)s, %(topic)s, %(hub)s, %(secret)s, 'wanted') "
        "ON CONFLICT (topic) DO UPDATE SET state = 'wanted', wanted_hub = %(hub)s, reason = '', "
        "attempts = 0, next_try_at = '-infinity' WHERE websub_subscriptions.state = 'unwanted'",
        {"id": new_id, "topic": topic, "hub": hub, "secret": secret},
    )
    return found.rowcount > 0


def unwant_subscription(connection: psycopg.Connection, topic: str) -> bool:
    """Want a topic no more; whether it was wanted."""
    found = connection.execute(
        "UPDATE websub_subscriptions SET state = 'unwanted', attempts = 0, "
        "next_try_at = '-infinity' WHERE topic = %s AND state <> 'unwanted'",
        (topic,),
    )
    return found.rowcount > 0


def list_subscriptions(connection: psycopg.Connection) -> list[Subscription]:
    """All of them, by topic."""
    return _read(connection, f"SELECT {_COLUMNS} FROM websub_subscriptions ORDER BY topic", {})


def count_subscriptions(connection: psycopg.Connection) -> dict[str, int]:
    """State → how many are in it."""
    found = connection.execute("SELECT state, count(*) FROM websub_subscriptions GROUP BY state")
    return dict.fromkeys(STATES, 0) | dict(found.fetchall())


def find_subscription(connection: psycopg.Connection, subscription_id: str) -> Subscription | None:
    """The one whose hub calls at an address."""
    query = f"SELECT {_COLUMNS} FROM websub_subscriptions WHERE id = %(id)s"
    return next(iter(_read(connection, query, {"id": subscription_id})), None)


def take_due_subscriptions(
    connection: psycopg.Connection,
    now: float,
    most: int,
    first_wait: float,
    longest_wait: float,
    latest: float,
) -> list[Subscription]:
    """Take those whose time has come; each is due again later, and later still every time.

    Args:
        connection: that commits by itself.
        now: Unix seconds.
        most: how many are taken.
        first_wait: seconds until the second attempt.
        longest_wait: seconds between two attempts at most.
        latest: seconds; no time lies further ahead: one that does was written while a clock was
            wrong, and has come.
    """
    query = f"""
        UPDATE websub_subscriptions SET
            attempts = attempts + 1,
            next_try_at = %(now)s
                + least(%(first)s * 2.0 ^ least(attempts, 30), %(longest)s)
        WHERE id IN (
            SELECT id FROM websub_subscriptions
            WHERE next_try_at <= %(now)s OR next_try_at > %(now)s + %(latest)s
            ORDER BY next_try_at, id LIMIT %(most)s FOR UPDATE SKIP LOCKED
        )
        RETURNING {_COLUMNS}
    """
    values = {"now": now, "most": most, "first": first_wait, "longest": longest_wait}
    values |= {"latest": latest}
    return _read(connection, query, values)


def note_asked(
    connection: psycopg.Connection, subscription_id: str, hub: str, hub_topic: str
) -> None:
    """The hub is about to be asked: it may call back before it has answered."""
    connection.execute(
        "UPDATE websub_subscriptions SET hub = %s, hub_topic = %s, reason = '' WHERE id = %s",
        (hub, hub_topic, subscription_id),
    )


def note_hub_moved(connection: psycopg.Connection, subscription_id: str, hub: str) -> None:
    """Another hub has taken the request, for good: that one is told when it is to end."""
    connection.execute(
        "UPDATE websub_subscriptions SET hub = %s WHERE id = %s", (hub, subscription_id)
    )


def note_failed(connection: psycopg.Connection, subscription_id: str, reason: str) -> None:
    """Why it did not work; it is tried again at its time."""
    connection.execute(
        "UPDATE websub_subscriptions SET reason = %s WHERE id = %s", (reason, subscription_id)
    )


def confirm_subscription(
    connection: psycopg.Connection, subscription_id: str, lease_ends: float, renew_at: float
) -> bool:
    """The hub has granted it; whether it is still wanted. Times are Unix seconds."""
    found = connection.execute(
        "UPDATE websub_subscriptions SET state = 'active', reason = '', attempts = 0, "
        "lease_ends = %s, next_try_at = %s WHERE id = %s AND state <> 'unwanted'",
        (lease_ends, renew_at, subscription_id),
    )
    return found.rowcount > 0


def refuse_subscription(
    connection: psycopg.Connection, subscription_id: str, reason: str, again_at: float
) -> None:
    """The hub does not want to, or no more. `again_at` is Unix seconds."""
    connection.execute(
        "UPDATE websub_subscriptions SET state = 'refused', reason = %s, next_try_at = %s, "
        "lease_ends = '-infinity' WHERE id = %s AND state <> 'unwanted'",
        (reason, again_at, subscription_id),
    )


def drop_subscription(connection: psycopg.Connection, subscription_id: str) -> bool:
    """Forget one that is not wanted; whether it was not."""
    found = connection.execute(
        "DELETE FROM websub_subscriptions WHERE id = %s AND state = 'unwanted'", (subscription_id,)
    )
    return found.rowcount > 0


def _read(
    connection: psycopg.Connection, query: str, values: Mapping[str, object]
) -> list[Subscription]:
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return [Subscription(*row) for row in cursor.execute(query, values).fetchall()]
