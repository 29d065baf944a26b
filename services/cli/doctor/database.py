"""What the promises rest on in the database: its settings, its schema, and who may do what."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
from alembic.script import ScriptDirectory

import migrations
from services.cli.doctor.database_encoding import look_at_encoding
from services.cli.doctor.database_log import look_at_log
from shared.contracts.databases import Database, Databases
from shared.runtime.findings import Finding
from shared.store.connection import connect, connect_writer, first_line
from shared.store.deployment import StoreMismatch, require_held
from shared.store.layout import read_layout
from shared.store.roles import ROLES

Having = Callable[[list[int]], list[int]]
"""Those of some shards that a database has."""

OLDEST_VERSION: Final = 150_000
"""Of PostgreSQL that is still maintained, as `server_version_num`."""

_KEPT: Final = "what was committed stands after a crash, and so do the positions"

_PARTITIONED: Final = ("pages", "page_urls")

_PLANS: Final = "a batch of 20,000 pages is written in a fifth of a second, not in five"


@dataclass(frozen=True, slots=True)
class _Safe:
    """A server's setting that a promise rests on."""

    name: str
    unsafe: tuple[str, ...]
    wanted: str
    promise: str


_SETTINGS: Final = (
    _Safe("fsync", ("off",), "on", _KEPT),
    _Safe("full_page_writes", ("off",), "on", _KEPT),
    _Safe("synchronous_commit", ("off",), "on", _KEPT),
    _Safe("default_transaction_read_only", ("on",), "off", "what is learned can be written"),
)


def look_at_databases(databases: Databases, shards: int) -> list[Finding]:
    """`look_at_database` of each; of several, each finding says which it is about."""
    if not databases.are_several:
        return look_at_database(databases.home, databases, shards)
    found = []
    for database in databases.each:
        try:
            findings = look_at_database(database, databases, shards)
        except psycopg.Error as error:
            # Whatever it is: it says nothing of the others.
            findings = [_away(first_line(error))]
        found += [
            replace(finding, about=f"{finding.about} ({database.held})") for finding in findings
        ]
    return found


def _away(reason: str) -> Finding:
    return Finding(
        "risk",
        "server",
        reason,
        "a server that answers, and lets us look",
        "workers do the work of these shards, and wait only for a while",
        "see FRESHET_DATABASES by `freshet settings`, and the server",
    )


def look_at_database(database: Database, databases: Databases, shards: int) -> list[Finding]:
    """Everything that was looked at, good or bad; nothing is changed.

    Args:
        database: which of them.
        databases: all.
        shards: as the settings say.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    with connect(database.url, "doctor", autocommit=True) as connection:
        findings = [*_server(connection), *_settings(connection), *_disks(connection)]
        findings += [look_at_log(connection), look_at_encoding(connection)]
        has_tables = connection.execute("SELECT to_regclass('deployment')").fetchone() != (None,)
        if has_tables:
            having = partial(databases.had_by, database)
            findings += [*_schema(connection, shards, having), *_roles(connection)]
            findings += [*_held(connection, database), *_lease(connection)]
        else:
            findings.append(_without_tables())
    return [*findings, _writer_settings(database.url)]


def _held(connection: psycopg.Connection, database: Database) -> Iterator[Finding]:
    """Whether the database has the shards that the settings say it has."""
    try:
        require_held(connection, database.held)
    except StoreMismatch as mismatch:
        yield Finding(
            "risk",
            "shards held",
            str(mismatch),
            "those of the settings",
            "every page is served by one shard",
            "give all commands and workers the FRESHET_DATABASES that it was migrated with, or "
            "name another database: by freshet migrate only an empty one gets other shards",
        )


def _lease(connection: psycopg.Connection) -> Iterator[Finding]:
    """Whether there is what coordinators take in turn."""
    row = connection.execute(
        "SELECT NOT has_table_privilege('coordinator_lease', 'SELECT')"
    ).fetchone()
    if row == (True,) or connection.execute("SELECT 1 FROM coordinator_lease").fetchone():
        return
    yield Finding(
        "risk", "coordinator_lease", "no row", "one", "a coordinator leads", "freshet migrate"
    )


def _server(connection: psycopg.Connection) -> Iterator[Finding]:
    row = connection.execute(
        "SELECT current_setting('server_version'), current_setting('server_version_num')::int, "
        "pg_is_in_recovery()"
    ).fetchone()
    version, number, is_standby = row or ("unknown", 0, False)
    if number < OLDEST_VERSION:
        yield Finding(
            "risk",
            "version",
            f"PostgreSQL {version}",
            "15 or later",
            "faults of the server are mended",
            "upgrade PostgreSQL",
        )
    else:
        yield Finding("ok", "version", f"PostgreSQL {version}")
    if is_standby:
        yield Finding(
            "risk",
            "standby",
            "this server only follows another",
            "the primary",
            "what is learned can be written",
            "set DATABASE_URL to the primary, by target_session_attrs=read-write for example",
        )


def _settings(connection: psycopg.Connection) -> Iterator[Finding]:
    for safe in _SETTINGS:
        row = connection.execute("SELECT current_setting(%s)", (safe.name,)).fetchone()
        found = str(row[0]) if row else ""
        if found in safe.unsafe:
            yield Finding(
                "risk",
                safe.name,
                found,
                safe.wanted,
                safe.promise,
                f"ALTER SYSTEM SET {safe.name} = {safe.wanted}; SELECT pg_reload_conf(); and look "
                "at ALTER ROLE and ALTER DATABASE of this user too",
            )
        else:
            yield Finding("ok", safe.name, found)


def _disks(connection: psycopg.Connection) -> Iterator[Finding]:
    """Whether another server has all of it too."""
    row = connection.execute(
        "SELECT current_setting('wal_level'), current_setting('synchronous_standby_names'), "
        "(SELECT count(*) FROM pg_stat_replication), pg_is_in_recovery()"
    ).fetchone()
    level, synchronous, standbys, is_standby = row or ("", "", 0, False)
    if is_standby:
        return
    said = f"wal_level={level}, {standbys} standbys"
    if standbys:
        kind = f"synchronous: {synchronous}" if synchronous else "none of them synchronous"
        yield Finding("ok", "standbys", f"{said}, {kind}")
        return
    yield Finding(
        "note",
        "standbys",
        said,
        "a standby, or archived write-ahead log",
        "the disk of the database may be lost, and what was learned is not",
        "wal_level=replica and a standby or pg_basebackup; for development this is right",
    )


def _without_tables() -> Finding:
    return Finding(
        "risk",
        "schema",
        "no Freshet tables",
        "the newest schema",
        "workers start",
        "freshet migrate",
    )


def _schema(connection: psycopg.Connection, shards: int, having: Having) -> Iterator[Finding]:
    wanted = ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head()
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        found = str(row[0]) if row else "none"
    except psycopg.errors.InsufficientPrivilege:
        found = None
    if found is None:
        yield Finding(
            "note",
            "schema",
            "its revision may not be read",
            f"revision {wanted}",
            "workers of this version find the tables that they know",
            "ask as the user who migrates",
        )
    elif found != wanted:
        yield Finding(
            "risk",
            "schema",
            f"revision {found}",
            f"revision {wanted}",
            "workers of this version find the tables that they know",
            "freshet migrate, before workers of this version start"
            if found < str(wanted)
            else "workers of the version that migrated it, or newer ones",
        )
    else:
        yield Finding("ok", "schema", f"revision {found}")
    yield from _shards(connection, shards, having)


def _growth(connection: psycopg.Connection, shards: int) -> Finding:
    waiting = 0
    if connection.execute("SELECT to_regclass('shard_splits')").fetchone() != (None,):
        row = connection.execute(
            "SELECT count(*) FROM shard_splits WHERE split_at IS NULL"
        ).fetchone()
        waiting = int(row[0]) if row else 0
    if not waiting:
        return Finding("ok", "shards", str(shards))
    return Finding(
        "note",
        "shards",
        f"growing to {shards}: {waiting} are not split yet",
        "all of them split",
        "pages can go to as many schedulers and estimators as there are shards",
        f"freshet shards grow {shards}",
    )


def _shards(connection: psycopg.Connection, shards: int, having: Having) -> Iterator[Finding]:
    row = connection.execute("SELECT shards FROM deployment").fetchone()
    made_for = int(row[0]) if row else 0
    if not made_for or made_for % shards:
        yield Finding(
            "risk",
            "shards",
            f"made for {made_for}",
            f"{shards}, as FRESHET_PARTITIONS says",
            "every page is served by one shard",
            f"set FRESHET_PARTITIONS={made_for}, or use another database",
        )
    else:
        yield _growth(connection, made_for)
    wanted = len(having(_with_hosts(connection, made_for)))
    for table in _PARTITIONED:
        row = connection.execute(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass(%s)", (table,)
        ).fetchone()
        found = int(row[0]) if row else 0
        if found < wanted:
            yield Finding(
                "risk",
                f"table {table}",
                f"{found} partitions",
                f"{wanted} partitions",
                "pages of every shard can be stored",
                "freshet migrate",
            )


def _with_hosts(connection: psycopg.Connection, shards: int) -> list[int]:
    """The shards that can have hosts; all, where the tables are too old for a growth."""
    try:
        return read_layout(connection).having_hosts
    except StoreMismatch:
        return list(range(shards))


def _roles(connection: psycopg.Connection) -> Iterator[Finding]:
    for role in ROLES:
        row = connection.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)", (role,)
        ).fetchone()
        if not (row and row[0]):
            yield Finding(
                "note",
                role,
                "no such role",
                "a role for each worker",
                "who takes over one worker can do only what it does",
                "freshet migrate, as a user who may create roles (deploy/security.md)",
            )
        elif missing := _missing(connection, role, role):
            yield Finding(
                "risk",
                role,
                f"may not {', '.join(missing)}",
                "the rights of its worker",
                "a worker with this role can do its work",
                "freshet migrate, as the tables' owner",
            )
        else:
            yield Finding("ok", role, "has its rights")
    yield _who_we_are(connection)


def _who_we_are(connection: psycopg.Connection) -> Finding:
    row = connection.execute(
        "SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    user, is_super = row or ("unknown", False)
    may = [role for role in ROLES if not _missing(connection, str(user), role)]
    said = f"{user} may do the work of {', '.join(may) or 'no worker'}"
    if is_super:
        return Finding(
            "note",
            "this user",
            f"{said}, and everything else: it is a superuser",
            "a user for each worker",
            "who takes over one worker can do only what it does",
            "deploy/security.md; for development this is right",
        )
    return Finding("ok", "this user", said)


_PRIVILEGE: Final = re.compile(r"([A-Z]+)(?: \(([^)]*)\))?")
"""As `ROLES` has them: of a table, or of some of its columns."""


def _missing(connection: psycopg.Connection, user: str, role: str) -> list[str]:
    """What a user lacks of a role's rights."""
    wanted = [
        (kind, table, columns or None)
        for table, privileges in ROLES[role].items()
        for kind, columns in _PRIVILEGE.findall(privileges)
    ]
    kinds, tables, columns = (list(column) for column in zip(*wanted, strict=True))
    rows = connection.execute(
        "SELECT kind, tab FROM unnest(%s::text[], %s::text[], %s::text[]) AS wanted "
        "(kind, tab, of_columns) WHERE to_regclass(tab) IS NULL "
        "OR (of_columns IS NULL AND NOT has_table_privilege(%s, to_regclass(tab)::oid, kind)) "
        "OR EXISTS (SELECT FROM regexp_split_to_table(of_columns, ', *') AS of_column "
        "WHERE NOT has_column_privilege(%s, to_regclass(tab)::oid, of_column, kind))",
        (kinds, tables, columns, user, user),
    ).fetchall()
    return [f"{privilege} {table}" for privilege, table in rows]


def _writer_settings(database_url: str) -> Finding:
    """At the server's own costs an update by key may read whole tables."""
    with connect_writer(database_url, "doctor") as connection:
        row = connection.execute(
            "SELECT current_setting('random_page_cost')::float8, current_setting('enable_hashjoin')"
        ).fetchone()
        server = connection.execute(
            "SELECT reset_val FROM pg_settings WHERE name = 'random_page_cost'"
        ).fetchone()
    cost, hash_join = row or (4.0, "on")
    if cost > 2.0 or hash_join == "on":
        return Finding(
            "risk",
            "random_page_cost",
            f"{cost:g} in a writer's session, enable_hashjoin={hash_join}",
            "1.1 and off, as the writer sets it",
            _PLANS,
            "a pooler that hands sessions around forgets what they set: connect to PostgreSQL "
            "itself, or pool by session",
        )
    own = server[0] if server else "?"
    return Finding("ok", "random_page_cost", f"{cost:g} in a writer's session (server: {own})")
