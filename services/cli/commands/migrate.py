"""`freshet migrate`."""

import click

from shared.terminal.output import show


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(as_json: bool) -> None:
    """Bring the database to the newest schema, with a partition for each shard.

    Can be run again at any time, also by several at once. The first run makes as many shards as
    FRESHET_PARTITIONS says; later they become more by `freshet shards grow` alone. Of several
    databases (FRESHET_DATABASES) each is brought there, and which shards it has is noted in it.

    \b
    Example:
      DATABASE_URL=postgresql://user@db/freshet freshet migrate
    """
    from migrations.upgrade import migrate  # noqa: PLC0415
    from services.cli.errors import without_password  # noqa: PLC0415
    from shared.runtime.databases import databases_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    databases = databases_of(settings)
    for one in databases.each:
        shards = migrate(one.url, settings.partitions, one.held)
    names = [without_password(one.url) for one in databases.each]
    answer = {"databases": names} if databases.are_several else {"database": names[0]}
    show(answer | {"shards": shards}, as_json=as_json)
