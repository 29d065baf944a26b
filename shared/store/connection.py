"""Connections to PostgreSQL, and how long anybody may hold what others wait for.

A client may be killed, frozen or cut off at any moment, with a transaction open. Its locks must not
outlive it: each connection tells the server itself after how long it is to be given up, so that
nothing depends on the server's settings, whose defaults are hours or for ever.

- Frozen between two statements, or while it sends one: `idle_in_transaction_session_timeout`.
- Cut off: TCP keepalives and the TCP user time-out, on both sides.
- Gone while the server works for it: `client_connection_check_interval`.

Who comes after waits for a lock for `LOCK_SECONDS`, and is told by `LockNotAvailable`.

A server that has stopped, and keeps its connections, is given up by commands alone
(`shared.store.watched_connection`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from shared.store.binary import register_arrays
from shared.store.patience import DATABASE_PATIENCE
from shared.store.watched_connection import WatchedConnection

CONNECT_SECONDS: Final = 10

SILENT_SECONDS: Final = 10
"""A client that says nothing for so long in the middle of a transaction is given up."""

LOCK_SECONDS: Final = 5
"""A lock is waited for so long."""

READER_SILENT_SECONDS: Final = 300
"""The same for readers, who lock nothing that a worker waits for: what they read takes them long to
work through, and beginning again takes longer."""

READER_CUT_OFF_SECONDS: Final = 60

VIEW_SECONDS: Final = 8
"""A statement for somebody who looks at a page is given up after so long."""

MIGRATION_SILENT_SECONDS: Final = 60

KEEPALIVE_SECONDS: Final = {"idle": 4, "interval": 2}
KEEPALIVES: Final = 3
"""An address that does not answer is given up after 4 + 3 × 2 seconds."""


PASSING: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
)
"""What passes: the server is away or busy, has given this session up, or takes no writes, as its
disk is full or it was demoted. Who keeps a connection gives it up then: the next one may lead to
another server."""


_LIMIT: Final = "54"


def exceeds_limit(error: BaseException) -> bool:
    """Whether something is more than the server takes at all (SQLSTATE class 54), which counts as
    operational in Python: waiting does not help."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_LIMIT)


def may_pass(error: BaseException) -> bool:
    """Whether waiting may help against an error of the database's (`PASSING`)."""
    return isinstance(error, PASSING) and not exceeds_limit(error)


def first_line(error: BaseException) -> str:
    """What a server says of an error, without its context."""
    return str(error).strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a session is given up; wall seconds."""

    silent: int = SILENT_SECONDS
    """It says nothing in the middle of a transaction."""
    cut_off: int = SILENT_SECONDS
    """What is sent to it is not taken."""
    lock: int | None = LOCK_SECONDS
    """It gives up waiting for a lock; None: never."""
    statement: int | None = None
    """A statement of its first transaction, which reads only, takes longer; None: no such bound."""


WORKING: Final = Limits()
READING: Final = Limits(READER_SILENT_SECONDS, READER_CUT_OFF_SECONDS)
VIEWING: Final = Limits(statement=VIEW_SECONDS)
MIGRATING: Final = Limits(MIGRATION_SILENT_SECONDS, lock=None)

_OTHERS_LIMITS: Final = ("statement_timeout", "transaction_timeout", "idle_session_timeout")
"""How long statements, transactions and idle sessions may take is not for the server to say. Those
before PostgreSQL 17 and 14 do not know the latter two."""

_AS_USUAL: Final = {
    "DateStyle": "ISO",
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
}
"""PostgreSQL's own defaults, whatever a role or a database has. The client reads no other dates and
writes no other strings; and who waited for a lock has to see what the one before has committed."""

_MOST_PREPARED: Final = 2048
"""Statements of a session whose plans the server keeps: each shard has some, as it has tables."""

_WRITER_SETTINGS = (
    # A 20,000-row update from arrays flips to a hash join over the whole table at the default
    # costs: 4.9 s instead of 0.2 s. The keys come sorted, and the pages are mostly cached.
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    # Without statistics a small table looks best read as a whole, once for every row to update.
    "SET enable_seqscan = off",
    "SET random_page_cost = 1.1",
    "SET jit = off",
)


def connect(
    database_url: str, role: str, *, autocommit: bool = False, limits: Limits = WORKING
) -> psycopg.Connection:
    """A connection that sends and receives numpy arrays in PostgreSQL's binary form.

    Args:
        database_url: libpq URL.
        role: who connects, as seen in `pg_stat_activity`.
        autocommit: no transaction unless one is begun.
        limits: when the server is to give it up.

    Raises:
        psycopg.OperationalError: the server cannot be reached. What is asked later may raise it,
            too; as `ServerStopped`, if a command asks and the server has stopped.
    """
    kind = WatchedConnection if DATABASE_PATIENCE.ends else psycopg.Connection
    try:
        connection = kind.connect(
            database_url,
            autocommit=True,
            application_name=f"freshet-{role}",
            connect_timeout=CONNECT_SECONDS,
            **transport(database_url, limits),
        )
    except psycopg.errors.ConnectionTimeout as error:
        # The client does not say whose: there may be several.
        raise type(error)(f"no answer from {_place(database_url)} in time") from error
    try:
        connection.execute(session_limits(limits))
    except BaseException:
        connection.close()
        raise
    connection.autocommit = autocommit
    register_arrays(connection)
    if limits.statement is not None:
        # Of the transaction, not of the session, which a pooler may give to a worker next.
        connection.execute(f"SET LOCAL statement_timeout = '{limits.statement}s'")
        connection.execute("SET TRANSACTION READ ONLY")
    return connection


def _place(database_url: str) -> str:
    usual = {"host": "localhost", "port": "5432", "dbname": ""}
    return "{host}:{port}/{dbname}".format(**usual | conninfo_to_dict(database_url))


def connect_writer(database_url: str, role: str) -> psycopg.Connection:
    """A connection set up for bulk updates by key (see `connect`)."""
    connection = connect(database_url, role)
    for statement in _WRITER_SETTINGS:
        connection.execute(statement)
    connection.commit()
    # The server listens for silence until a message is whole, but not between two of a statement:
    # a statement whose text it has already is a single one.
    connection.prepare_threshold = 0
    connection.prepared_max = _MOST_PREPARED
    return connection


def server_of(connection: psycopg.Connection) -> object:
    """Which server a connection leads to, and which of its lives: no other's is equal.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    with connection.transaction():
        return connection.execute("SELECT pg_postmaster_start_time()").fetchone()


def transport(database_url: str, limits: Limits = WORKING) -> dict[str, Any]:
    """libpq's parameters by which a client gives up a server, where the URL does not say them; and
    those by which it sends and gets text, whatever the database keeps it in: of one in SQL_ASCII it
    would get bytes."""
    wanted = {
        "keepalives": 1,
        "keepalives_idle": KEEPALIVE_SECONDS["idle"],
        "keepalives_interval": KEEPALIVE_SECONDS["interval"],
        "keepalives_count": KEEPALIVES,
        "tcp_user_timeout": 1000 * limits.cut_off,
    }
    given = conninfo_to_dict(database_url)
    missing = {name: value for name, value in wanted.items() if name not in given}
    return missing | {"client_encoding": "UTF8"}


def session_limits(limits: Limits = WORKING) -> str:
    """The statement by which a session tells the server when to give it up, and when not to; and
    that all else is as usual.

    What administrators have set for a role or a database, as against statements of people that run
    for long, would cut off at each attempt what takes that long, such as loading a large shard.

    On a Unix socket the server leaves out what is about TCP.
    """
    settings = {
        "idle_in_transaction_session_timeout": f"{limits.silent}s",
        "lock_timeout": f"{limits.lock or 0}s",
        "client_connection_check_interval": "2s",
        "tcp_keepalives_idle": KEEPALIVE_SECONDS["idle"],
        "tcp_keepalives_interval": KEEPALIVE_SECONDS["interval"],
        "tcp_keepalives_count": KEEPALIVES,
        "tcp_user_timeout": f"{limits.cut_off}s",
    }
    return f"{session_settings(settings | _AS_USUAL)}, {', '.join(map(_unlimited, _OTHERS_LIMITS))}"


def _unlimited(setting: str) -> str:
    """What turns a setting off, where the server has it."""
    is_there = f"current_setting('{setting}', true) IS NOT NULL"
    return f"CASE WHEN {is_there} THEN set_config('{setting}', '0', false) END"


def session_settings(settings: Mapping[str, object]) -> str:
    """The statement by which a session sets what holds until it ends.

    A statement, not options of the connection: poolers refuse those, and the URL's own would not
    count beside them.
    """
    calls = [f"set_config('{name}', '{value}', false)" for name, value in settings.items()]
    return f"SELECT {', '.join(calls)}"
