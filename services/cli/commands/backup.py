"""`freshet backup save|restore`."""

import asyncio
from pathlib import Path
from typing import Any

import click

from shared.terminal.output import show


class _File(click.Path):
    """The path of a file, by its name: an empty one, as of a variable that is not set, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("it is empty: name a file", param, ctx)
        return super().convert(value, param, ctx)


_FILE = _File(path_type=Path, dir_okay=False)


@click.group()
def command() -> None:
    """Copy what operators have set: the budget, and the limits of groups and hosts.

    They stand on Kafka's topics, and those of hosts in PostgreSQL as well: both have to be there.
    Everything else is in PostgreSQL alone, which pg_dump copies. The documentation has both in
    their order.

    \b
    Examples:
      pg_dump --format=custom --file=freshet.dump "$DATABASE_URL"
      freshet backup save freshet-limits.jsonl
      freshet backup restore freshet-limits.jsonl --dry-run
    """


@command.command("save")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Also over a copy that has what stands no more.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def save(file: Path, force: bool, as_json: bool) -> None:
    """Write the budget and the limits that hold now to FILE.

    A copy that has a budget, or limits, stays where nothing stands any more of its kind, not even
    that it was taken back: topics may have been lost.
    """
    from services.cli.backup import save as write  # noqa: PLC0415 - commands load what they need
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    show(asyncio.run(write(load_settings(), file, force=force)), as_json=as_json)


@command.command("restore")
@click.argument("file", type=_FILE)
@click.option("--overwrite", is_flag=True, help="Also where something else was set since.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def restore(file: Path, overwrite: bool, dry_run: bool, as_json: bool) -> None:
    """Set what FILE has and the topics and the database do not.

    What was set since the copy was made stays: the budget that stands on its topic, and each rule
    of a host (its limit, its block, its bound of open requests, its crawl delay) by itself, also
    one that was taken back. What is restored holds as if it had been set now.
    """
    from services.cli.audit import note  # noqa: PLC0415
    from services.cli.backup import Restored, read_copy  # noqa: PLC0415
    from services.cli.backup import restore as publish  # noqa: PLC0415
    from services.cli.errors import UserError  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    try:
        with file.open(encoding="utf-8") as opened:
            copy = read_copy(opened)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    done, said = Restored(), "restores"
    try:
        asyncio.run(publish(settings, copy, done, overwrite=overwrite, dry_run=dry_run))
        said = "restored"
    finally:
        # Also of what was cut off: some of it holds.
        if done.restored and not dry_run:
            change = {said: done.restored, "first": done.keys, "overwrite": overwrite}
            note(settings, "backup", None, change)
    what = "would_restore" if dry_run else "restored"
    answer = {what: done.restored, "as_it_stands": done.same, "set_since": done.newer}
    show(answer, as_json=as_json)
