"""`freshet calibration`."""

from pathlib import Path

import click

from services.cli.errors import UserError
from shared.terminal.numbers import Number
from shared.terminal.output import show_json


@click.command()
@click.option("--days", type=Number(0.01, 3650), default=7.0, show_default=True)
@click.option(
    "--crawls",
    "most",
    type=click.IntRange(1000, 10_000_000),
    default=200_000,
    show_default=True,
    help="Look at about so many; where there are more, at a sample of the pages.",
)
@click.option(
    "--hosts",
    type=click.IntRange(0, 100_000),
    default=10,
    show_default=True,
    help="Show so many hosts, those with the most crawls.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw it, too; .svg or .png.",
)
def command(days: float, most: int, hosts: int, *, as_json: bool, picture: Path | None) -> None:
    """Whether what was predicted of crawls came true, and what it brought.

    Of the crawls of the last days that were to find a change with a chance: how many did, by the
    chance, by host and by source of signals. How fresh copies were over time, as the model expected
    and as the crawls tell; and how fresh they had been if the same crawls went by age alone.

    \b
    Examples:
      freshet calibration
      freshet calibration --days 28 --picture calibration.svg
    """
    from services.cli.calibrating import lines  # noqa: PLC0415 - commands load what they need
    from services.cli.calibration_picture import draw_calibration  # noqa: PLC0415
    from services.replay.plots import check_picture  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.views.answers import calibration_answer  # noqa: PLC0415

    if picture is not None:
        try:
            check_picture(picture)
        except ValueError as error:
            raise UserError(str(error)) from error
    answer = calibration_answer(load_settings(), days, most, hosts)
    if picture is not None:
        draw_calibration(answer, picture)
    if as_json:
        show_json(answer)
        return
    for line in lines(answer):
        click.echo(line)
