"""`freshet world PLAN`."""

from pathlib import Path

import click

from services.cli.errors import UserError


@click.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def command(plan: Path) -> None:
    """Run a simulated web, its pingers and crawler fleet against a running system.

    PLAN is a JSON file that says what the web is made of; `freshet run` leaves the one that it used
    in its data directory (world.json), which is a good one to start from.

    \b
    Example:
      freshet world .freshet/run/world.json
    """
    from services.world.plan import read_plan  # noqa: PLC0415 - commands load what they need
    from services.world.worker import main  # noqa: PLC0415

    try:
        read_plan(plan)
    except ValueError as error:
        raise UserError(str(error)) from error
    main([str(plan)])
