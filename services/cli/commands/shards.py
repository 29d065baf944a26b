"""`freshet shards show|grow`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from shared.terminal.numbers import Number
from shared.terminal.output import show, show_json, show_rows

if TYPE_CHECKING:
    from shared.store.splitting import Told


@click.group()
def command() -> None:
    """How many shards there are; let them become more while everything runs.

    \b
    Examples:
      freshet shards show
      freshet shards grow 128
    """


@command.command("show")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def show_(as_json: bool) -> None:
    """Number of shards, how far a growth is, and the pages of each.

    Of several databases one that is away is left out, and named; then it exits 1.

    \b
    States, of the shard that had the hosts before the last growth:
      waiting      it still has the hosts of all that come of it
      asked        its scheduler is asked to stop picking for a moment
      held         the scheduler has stopped: it can be split now
      split        each of those that came of it has its own
    """
    from services.cli.left_out import require_all  # noqa: PLC0415 - commands load what they need
    from services.cli.shards import shards_now  # noqa: PLC0415
    from shared.runtime.databases import databases_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    answer, away = shards_now(databases_of(load_settings()))
    if as_json:
        show_json(answer)
    else:
        rows = answer.pop("states")
        show(answer, as_json=False)
        click.echo()
        show_rows(rows, as_json=False, empty="there are no shards")
    require_all(away)


@command.command("grow")
@click.argument("number", type=click.IntRange(min=1))
@click.option(
    "--known-seconds",
    type=Number(min=0),
    default=300.0,
    show_default=True,
    help="Between new partitions and the first split: crawlers learn of them within their "
    "`metadata.max.age.ms`, and their requests would wait there.",
)
@click.option(
    "--wait-seconds",
    type=Number(min=0),
    default=300.0,
    show_default=True,
    help="For each shard: until its scheduler has stopped, and it is split, beside the copying. "
    "Before all: until estimators have applied what was to be applied first.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--unattended",
    is_flag=True,
    help="No scheduler runs at all: split shards whose scheduler has not answered in that time. "
    "Estimators must have applied all.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def grow(
    number: int,
    known_seconds: float,
    wait_seconds: float,
    dry_run: bool,
    yes: bool,
    unattended: bool,
    as_json: bool,
) -> None:
    """Make NUMBER shards of those that there are, while everything runs.

    NUMBER is a multiple of how many there are. The topics get partitions, and once crawlers can
    know them each shard is split, one after the other. What moves is copied first; then nothing of
    the shard is picked for some seconds a million pages; all others go on.

    Nothing is lost if this command is killed: call it again with the same number, and it goes on.
    There is no way back to fewer shards, so it asks before it begins. Where the topics have more
    partitions already than the database has shards, as after a dump of before a growth was
    restored, it waits first until estimators have applied all.

    The user in DATABASE_URL must own the tables, as for `freshet migrate`. All workers must be of
    this version. Of several databases (FRESHET_DATABASES) each splits its own shards, and all must
    be there at the beginning.

    Workers go by the number of the database at once; set FRESHET_PARTITIONS to it in their settings
    when it is convenient.

    \b
    Examples:
      freshet shards grow 128 --dry-run
      freshet shards grow 128
    """
    from services.cli import growth  # noqa: PLC0415
    from services.cli.group_limits import require_room  # noqa: PLC0415
    from services.cli.interrupted import telling_what_is_done  # noqa: PLC0415
    from services.cli.kafka import require_broker  # noqa: PLC0415
    from shared.runtime.databases import databases_of  # noqa: PLC0415
    from shared.runtime.growing import add_partitions, require_partitions  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.asking_all import require_all_held  # noqa: PLC0415
    from shared.store.splitting import (  # noqa: PLC0415
        finish,
        let_be_known,
        prepare,
        require_can_grow,
        split_all,
    )

    settings = load_settings()
    databases = databases_of(settings)
    require_broker(settings)
    require_all_held(databases, "cli")
    before = require_can_grow(databases, number)
    # Before the databases are told: once they are, no other number can come.
    asyncio.run(require_partitions(settings, number))
    asyncio.run(require_room(settings, number))
    if not growth.is_wanted(databases, before, number, dry_run=dry_run, yes=yes, as_json=as_json):
        return
    is_noted = False
    with telling_what_is_done(lambda: growth.noted(number) if is_noted else None), _bar() as told:
        if unattended:
            asyncio.run(growth.require_all_applied(settings, told, wait_seconds))
        else:
            asyncio.run(growth.require_order(settings, before, told, wait_seconds))
        layout = prepare(databases, number)
        is_noted = True
        topics = asyncio.run(add_partitions(settings, number))
        let_be_known(layout, told, known_seconds)
        if unattended:
            asyncio.run(growth.require_order_unattended(settings, layout, told, wait_seconds))
        counts = split_all(
            databases, layout, told, wait_seconds=wait_seconds, unattended=unattended
        )
        observations = finish(databases, layout, told)
    answer = {
        "shards": layout.shards,
        "grown_from": layout.grown_from,
        "topics": topics,
        "shards_split": len(counts),
        "pages_moved": sum(one.pages for one in counts),
        "hosts_moved": sum(one.hosts for one in counts),
        "observations_moved": observations,
    }
    show(answer, as_json=as_json)


@contextmanager
def _bar() -> "Iterator[Told]":
    """A bar on standard error; where that is no terminal, a line for each thing that is done."""
    from rich.console import Console  # noqa: PLC0415 - commands load what they need
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    said = ""
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)

        def told(done: int, total: int, what: str) -> None:
            nonlocal said
            progress.update(task, description=what, completed=done, total=total)
            if what != said and not console.is_terminal:
                click.echo(what, err=True)
            said = what

        yield told
