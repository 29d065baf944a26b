"""Where commands ask, once it is seen that the settings say what the databases have."""

from shared.runtime.databases import databases_of
from shared.runtime.settings import Settings
from shared.store.asking_all import url_of

_ROLE = "cli"


def home_url(settings: Settings) -> str:
    """Of the database with what is not of a single shard.

    Raises:
        StoreMismatch, psycopg.Error: as `url_of`.
    """
    return url_of(databases_of(settings).home, _ROLE)


def url_of_host(settings: Settings, host: str) -> str:
    """Of the database that has a host.

    Raises:
        StoreMismatch, psycopg.Error: as `url_of`.
    """
    return url_of(databases_of(settings).of_host(host), _ROLE)
