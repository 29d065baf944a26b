"""Hosts as people name them: the one that is called so, and never another one.

`example.com:443` mostly means the port that goes without saying. But pages of http:// on port 443,
and of https:// on port 80, are of hosts that are called so.
"""

from services.cli.databases import url_of_host
from services.cli.errors import UserError
from shared.contracts.identity import host_name
from shared.rules.host_rules import as_said, meant_host, usual_name
from shared.runtime.settings import Settings
from shared.store import host_listing
from shared.store.connection import VIEWING


def named_host(settings: Settings, written: str) -> str:
    """The host that is called so; where none is known, and its port may be meant to go without
    saying, the one without. Only then a database is asked.

    Raises:
        BadHost: it is no host.
        StoreMismatch, psycopg.Error: it cannot be asked.
    """

    def is_known(name: str) -> bool:
        return host_listing.read_host(url_of_host(settings, name), name, VIEWING) is not None

    return meant_host(written, is_known)


def exactly_named_host(settings: Settings, written: str) -> str:
    """The same for what is not easily taken back: nothing is guessed.

    Raises:
        BadHost, StoreMismatch, psycopg.Error: as `named_host`.
        UserError: none is known that is called so, and another one may be meant.
    """
    name = host_name(written)
    if named_host(settings, written) != name:
        raise UserError(
            f"no host {name} is known: write {usual_name(name)} if the port is the one that goes "
            f"without saying, or {as_said(name)} if it is not"
        )
    return name
