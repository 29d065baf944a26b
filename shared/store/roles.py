"""Who may do what in the database: a group role for each worker that has something to do there, one
for who gives commands, and one for who only reads.

The roles cannot log in. An operator grants them to users of their own (`GRANT freshet_scheduler TO
crawl_scheduler`), and each worker logs in as its user: whoever takes over a scheduler can read
what it reads, and change nothing. The ingester has no database, and no role. What alters tables is
for their owner: `freshet migrate`, `freshet shards grow`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import psycopg
import structlog

from shared.store.partitions import partitions_of

log = structlog.get_logger(__name__)

BY_SHARD: Final = ("pages", "page_urls")
"""Tables whose partitions are also read one by one."""

_EVERYTHING: Final = (
    "deployment",
    "shard_splits",
    "shard_claims",
    "pages",
    "page_urls",
    "hosts",
    "page_estimates",
    "observations",
    "stream_positions",
    "shard_owners",
    "page_imports",
    "erased_pages",
    "erased_hosts",
    "unanswered_pages",
    "stream_topics",
    "multiplier_history",
    "coordinator_lease",
    "operator_changes",
    "ping_accounts",
    "stream_cursors",
    "watched_sites",
    "watched_sources",
    "let_in_pages",
    "let_in_hosts",
    "page_classes",
)

_LETTING_IN: Final = {
    "let_in_pages": "SELECT, INSERT, DELETE",
    "let_in_hosts": "SELECT, INSERT, UPDATE",
}
"""Of those who make pages of links, and keep the quotas of hosts."""

ROLES: Final[dict[str, dict[str, str]]] = {
    "freshet_estimator": {
        # Whether it knows the schema.
        "alembic_version": "SELECT",
        "deployment": "SELECT",
        "shard_splits": "SELECT",
        "pages": "SELECT, INSERT, UPDATE, DELETE",
        "page_urls": "SELECT, INSERT, UPDATE, DELETE",
        "hosts": "SELECT, INSERT, UPDATE, DELETE",
        "observations": "SELECT, INSERT",
        "stream_positions": "SELECT, INSERT, UPDATE",
        "shard_owners": "SELECT, INSERT, UPDATE",
        "page_imports": "SELECT, INSERT, DELETE",
        "erased_pages": "SELECT, INSERT, UPDATE, DELETE",
        "erased_hosts": "SELECT, INSERT, UPDATE, DELETE",
        # Of pages that are erased.
        "unanswered_pages": "SELECT, DELETE",
        "page_classes": "SELECT, INSERT, UPDATE",
        "stream_topics": "SELECT, INSERT",
        "multiplier_history": "SELECT, DELETE",
    },
    "freshet_scheduler": {
        # Whether it knows the schema.
        "alembic_version": "SELECT",
        "deployment": "SELECT",
        # It says when it has stopped to pick.
        "shard_splits": "SELECT, UPDATE (state)",
        "shard_claims": "SELECT, INSERT, UPDATE",
        "pages": "SELECT",
        "page_urls": "SELECT",
        "hosts": "SELECT",
        "stream_positions": "SELECT",
        "shard_owners": "SELECT",
        "page_imports": "SELECT",
        "erased_pages": "SELECT",
        "erased_hosts": "SELECT",
        # What nobody answers, only it knows.
        "unanswered_pages": "SELECT, INSERT, UPDATE, DELETE",
        "page_classes": "SELECT",
        "stream_topics": "SELECT",
    },
    "freshet_coordinator": {
        "deployment": "SELECT",
        "shard_splits": "SELECT",
        "coordinator_lease": "SELECT, UPDATE",
        "multiplier_history": "SELECT, INSERT, DELETE",
        # Budgets and limits are set beside a coordinator, by who may log in as one.
        "operator_changes": "SELECT, INSERT",
    },
    "freshet_receiver": {
        "websub_subscriptions": "SELECT, UPDATE, DELETE",
        # What each source has sent is added up there.
        "ping_accounts": "SELECT, INSERT, UPDATE",
    },
    "freshet_poller": {
        "stream_cursors": "SELECT, INSERT, UPDATE",
        "watched_sites": "SELECT",
        "watched_sources": "SELECT, INSERT, UPDATE, DELETE",
        # Which pages are there already, and in which shards.
        "deployment": "SELECT",
        "shard_splits": "SELECT",
        "pages": "SELECT (shard, page_id)",
        # What a poll is worth.
        "page_estimates": "SELECT",
        "multiplier_history": "SELECT",
    },
    "freshet_frontier": {
        "deployment": "SELECT",
        "shard_splits": "SELECT",
        "pages": "SELECT",
        "page_urls": "SELECT",
        "hosts": "SELECT",
        **_LETTING_IN,
    },
    # Which pages there are, and how many each host has.
    "freshet_discoverer": {
        "deployment": "SELECT",
        "shard_splits": "SELECT",
        "pages": "SELECT (shard, page_id, host_id, status)",
        "hosts": "SELECT (shard, host_id, host)",
        **_LETTING_IN,
    },
    # Whatever commands read and write; pages are erased by estimators, which are told to.
    "freshet_operator": dict.fromkeys(_EVERYTHING, "SELECT")
    | {
        # Whether it knows the schema.
        "alembic_version": "SELECT",
        # `freshet pages import`.
        "pages": "SELECT, INSERT, UPDATE",
        "page_urls": "SELECT, INSERT, UPDATE",
        "hosts": "SELECT, INSERT, UPDATE",
        "shard_owners": "SELECT, INSERT, UPDATE",
        "page_imports": "SELECT, INSERT, DELETE",
        "page_classes": "SELECT, INSERT, UPDATE",
        # `freshet pages purge`, `freshet hosts erase`.
        "observations": "SELECT, DELETE",
        # `freshet positions settle`.
        "stream_positions": "SELECT, INSERT, UPDATE",
        "stream_topics": "SELECT, INSERT, UPDATE",
        # `freshet sites`, `freshet subscriptions`: they make the secrets.
        "watched_sites": "SELECT, INSERT, UPDATE, DELETE",
        "watched_sources": "SELECT, INSERT, UPDATE, DELETE",
        "websub_subscriptions": "SELECT, INSERT, UPDATE",
        # `freshet changes`.
        "operator_changes": "SELECT, INSERT",
    },
    # The secrets of subscriptions are not for who only reads.
    "freshet_readonly": dict.fromkeys(_EVERYTHING, "SELECT"),
}
"""Role → table → privileges."""

FUNCTIONS: Final = {
    "freshet_estimator": (
        "freshet_add_observations(bigint, double precision)",
        "freshet_drop_observations(bigint)",
    )
}
"""Role → functions of the tables' owner that it may call."""

_CREATE: Final = """
DO $$ BEGIN
    CREATE ROLE {role} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""
"""Roles are of the whole server: a migration of another database may make them meanwhile."""


def ensure_roles(connection: psycopg.Connection) -> list[str]:
    """Make the roles where that is allowed, and give them their privileges. Idempotent.

    Args:
        connection: of the tables' owner, in a transaction; the partitions are there.

    Returns:
        roles that are missing, as this user may not make them; said in the log as well.
    """
    missing = [role for role in ROLES if not _exists(connection, role)]
    if missing and _may_create(connection):
        for role in missing:
            connection.execute(_CREATE.format(role=role))
        missing = []
    [(schema,)] = connection.execute("SELECT quote_ident(current_schema())").fetchall()
    parts = {table: sorted(partitions_of(connection, table)) for table in BY_SHARD}
    for role in ROLES.keys() - set(missing):
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        for table in ROLES[role]:
            connection.execute(f"REVOKE ALL ON {table} FROM {role}")
        for _, statement in grants(role, parts):
            connection.execute(statement)
    if missing:
        log.warning(
            "roles of the workers are missing, and this user may not create roles: let one who "
            "may run these, then migrate again; or let all workers log in as the tables' owner",
            statements=[f"CREATE ROLE {role} NOLOGIN" for role in missing],
        )
    return missing


def grants(role: str, parts: Mapping[str, Sequence[str]]) -> Iterator[tuple[Sequence[str], str]]:
    """What gives a role its privileges: the names of what it is about, and the statement.

    Args:
        role: of `ROLES`.
        parts: partitions of the tables `BY_SHARD`.
    """
    for table, privileges in ROLES[role].items():
        yield [table], f"GRANT {privileges} ON {table} TO {role}"
        if parts.get(table) and "(" not in privileges:
            yield parts[table], f"GRANT SELECT ON {', '.join(parts[table])} TO {role}"
    for function in FUNCTIONS.get(role, ()):
        yield [function.partition("(")[0]], f"GRANT EXECUTE ON FUNCTION {function} TO {role}"


def _exists(connection: psycopg.Connection, role: str) -> bool:
    return connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).rowcount > 0


def _may_create(connection: psycopg.Connection) -> bool:
    query = "SELECT FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolcreaterole)"
    return connection.execute(query).rowcount > 0
