"""Whether a host that a rule is set for is one that has pages."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import click
import psycopg

from services.cli.databases import url_of_host
from shared.runtime.settings import Settings
from shared.store import host_listing
from shared.store.connection import VIEWING
from shared.store.deployment import StoreMismatch


@contextmanager
def noted_if_unknown(settings: Settings, host: str) -> Iterator[None]:
    """Say so afterwards where nobody has heard of a host: its name may be misspelt.

    It is looked up while the rule is sent, which makes it known, and which waits for no database.
    One that is away, or that may not be read, says nothing.
    """
    with ThreadPoolExecutor(1, "unknown") as thread:
        known = thread.submit(_is_known, settings, host)
        yield
        if not known.result():
            click.echo(f"no page of {host} is known: is this its name?", err=True)


def _is_known(settings: Settings, host: str) -> bool:
    """Whether there is anything of a host; also where that cannot be told."""
    try:
        return host_listing.read_host(url_of_host(settings, host), host, VIEWING) is not None
    except (psycopg.Error, StoreMismatch):
        return True
