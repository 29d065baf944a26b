"""Noting who changed the budget and limits, and when."""

import getpass
import socket
from collections.abc import Mapping
from typing import Any

import click
import psycopg

from services.cli.databases import home_url
from shared.runtime.settings import Settings
from shared.store.changes import About, Change, note_change
from shared.store.connection import first_line
from shared.store.deployment import StoreMismatch


def note(settings: Settings, about: About, host: str | None, change: Mapping[str, Any]) -> None:
    """Note a change that holds already, or that is begun and may end half-way; where that fails,
    say so and go on.

    A budget must be lowered though the database be away.
    """
    noted = Change(settings.clock().now(), who(settings), about, host, dict(change))
    try:
        note_change(home_url(settings), noted)
    except (psycopg.Error, StoreMismatch) as error:
        click.echo(
            f"this could not be noted for `freshet changes`: {first_line(error)}",
            err=True,
        )


def who(settings: Settings) -> str:
    """The operator as the settings name them, or the user and the machine."""
    if settings.operator is not None:
        return settings.operator
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        # In containers a user need not have a name.
        user = "somebody"
    # Bytes of the environment need not be text, and the database takes nothing else.
    return f"{user}@{socket.gethostname()}".encode(errors="backslashreplace").decode()
