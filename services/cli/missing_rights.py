"""What to do where the user of a command lacks a right: which role has it, and what it does."""

import re
from typing import Final

import click
import psycopg

from shared.runtime.databases import databases_of
from shared.runtime.settings import load_settings
from shared.store.connection import connect
from shared.store.roles import BY_SHARD, ROLES

READER: Final = "freshet_readonly"
OPERATOR: Final = "freshet_operator"

_OF_OWNERS: Final = {"migrate"}
"""Commands that nobody else can give, whatever they lack first."""

_TABLE: Final = re.compile(r"\w+")


def advice(error: Exception) -> str:
    """Who has the right that is missing, and what to do.

    Args:
        error: of a right that is missing, as the server says it, in whatever language.
    """
    role = None if _is_of_owners() else _role_for(_table_of(str(error)))
    if role is None:
        return "do it as the user who owns the tables, who migrates"
    does = "reads" if role == READER else "does what operators do"
    return f"grant it the role that {does}, {role}"


def _is_of_owners() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().invoked_subcommand in _OF_OWNERS


def _table_of(said: str) -> str | None:
    """The table that an error is about; of a partition, the partition. None: it is about none."""
    for word in _TABLE.findall(said.partition("\n")[0]):
        if any(_whole(word) in privileges for privileges in ROLES.values()):
            return str(word)
    return None


def _whole(table: str) -> str:
    """The table of a partition by shard; any other as it is."""
    name, _, number = table.rpartition("_")
    return name if name in BY_SHARD and number.isdigit() else table


def _role_for(table: str | None) -> str | None:
    """The role that has what a user lacks; None: only the owner does.

    Who may read the table was about to write to it.
    """
    if table is None:
        return None
    of_operators = ROLES[OPERATOR].get(_whole(table), "")
    if _may_read(table):
        return OPERATOR if of_operators not in ("", "SELECT") else None
    if _whole(table) in ROLES[READER]:
        return READER
    return OPERATOR if of_operators else None


def _may_read(table: str) -> bool:
    """Whether the user may read a table, wherever it is to be asked."""
    for database in databases_of(load_settings()).each:
        try:
            with connect(database.url, "cli") as connection:
                row = connection.execute(
                    "SELECT has_table_privilege(to_regclass(%s)::oid, 'SELECT')", (table,)
                ).fetchone()
        except psycopg.Error:
            continue
        if row is not None and row[0] is False:
            return False
    return True
