"""The databases that the settings name: one, or several that share the shards."""

from typing import TYPE_CHECKING

from pydantic import SecretStr

from shared.contracts.databases import Database, Databases
from shared.runtime.database_urls import check_database_url

if TYPE_CHECKING:
    from shared.runtime.settings import Settings


def databases_of(settings: "Settings") -> Databases:
    """Which database has which shards."""
    if settings.databases is None:
        return Databases.alone(settings.database_url.get_secret_value())
    return _parsed("databases", settings.databases)


def at_database(settings: "Settings", database: Database) -> "Settings":
    """The same settings for a part that knows of one database only."""
    return settings.model_copy(update={"database_url": SecretStr(database.url)})


def held_by(settings: "Settings") -> str | None:
    """Which shards the database of `database_url` has to have (`Database.held`)."""
    return databases_of(settings).at(settings.database_url.get_secret_value()).held


def for_views(settings: "Settings") -> "Settings":
    """The same settings for who looks at pages for others, by users who may only read."""
    if settings.view_databases is not None:
        home = _parsed("view_databases", settings.view_databases).home
        update = {"database_url": SecretStr(home.url), "databases": settings.view_databases}
    else:
        update = {"database_url": settings.view_database_url or settings.database_url}
    return settings.model_copy(update=update)


def check_databases(settings: "Settings") -> SecretStr | None:
    """See that libpq takes the URLs of databases, and that the settings about them fit together;
    the URL of the home, of several.

    Raises:
        ValueError: they do not; the text says how, and has no secret in it.
    """
    for name in ("database_url", "view_database_url"):
        if (url := getattr(settings, name)) is not None:
            check_database_url(name, url.get_secret_value())
    if settings.databases is None:
        if settings.view_databases is not None:
            raise ValueError("view_databases is given without databases")
        return None
    found = _parsed("databases", settings.databases)
    if settings.partitions % found.modulus:
        raise ValueError(
            f"databases: the ranges are of {found.modulus} shards, and partitions is "
            f"{settings.partitions}, which is no multiple of it"
        )
    home = SecretStr(found.home.url)
    if "database_url" in settings.model_fields_set and settings.database_url != home:
        raise ValueError("databases: DATABASE_URL is not the URL of shard 0: leave it out")
    if settings.view_database_url is not None:
        raise ValueError("view_database_url is of one database only: give view_databases")
    if settings.view_databases is not None:
        view = _parsed("view_databases", settings.view_databases)
        if [one.held for one in view.each] != [one.held for one in found.each]:
            raise ValueError("view_databases: the ranges differ from those of databases")
    return home


def _parsed(name: str, given: SecretStr) -> Databases:
    try:
        found = Databases.parse(given.get_secret_value())
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    for one in found.each:
        check_database_url(name, one.url)
    return found
