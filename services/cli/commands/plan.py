"""`freshet plan`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.errors import UserError
from shared.terminal.numbers import Number
from shared.terminal.output import show_json

if TYPE_CHECKING:
    from services.plan.coefficients import Coefficients
    from shared.runtime.settings import Settings

_GOES_BY = ("observations_kept_days", "kafka_session_timeout_seconds", "estimator_resident_pages")
"""Settings that a plan goes by."""


@click.command()
@click.option("--pages", type=Number(1, 1e12), required=True, help="1e9, say.")
@click.option("--crawls-per-second", type=Number(0.001, 1e6), required=True)
@click.option(
    "--signals-per-second",
    type=Number(0, 1e7),
    help="Absent: half as many as crawls, as where the costs were measured.",
)
@click.option("--hosts", type=Number(1, 1e12), help="Absent: one for 40 pages.")
@click.option(
    "--memory", type=Number(0.5, 4096), default=32.0, show_default=True, metavar="GIB",
    help="That one replica may have at most.",
)  # fmt: skip
@click.option("--copies", type=click.IntRange(1, 9), default=3, show_default=True, help="On Kafka.")
@click.option(
    "--retention-days", type=Number(0.1, 3650),
    help="Of outcomes and signals on Kafka. Absent: seven, as the topics are made.",
)  # fmt: skip
@click.option(
    "--measured", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Coefficients of yours, as `freshet bench planet --write` leaves them.",
)  # fmt: skip
@click.option("--coefficient", "given", multiple=True, metavar="NAME=VALUE", help="One of yours.")
@click.option("--coefficients", "shows_all", is_flag=True, help="Show them, and who measured them.")
@click.option("--values", "as_values", is_flag=True, help="Only the lines for values.yaml.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON, with the coefficients.")
def command(
    pages: float,
    crawls_per_second: float,
    signals_per_second: float | None,
    hosts: float | None,
    memory: float,
    copies: int,
    retention_days: float | None,
    measured: Path | None,
    given: tuple[str, ...],
    shows_all: bool,
    as_values: bool,
    as_json: bool,
) -> None:
    """How large an installation must be: replicas, shards, memory, processors, disk and network.

    It adds up coefficients that were measured, and says by which commands. The answer ends with
    the lines for the chart's values.yaml.

    \b
    Examples:
      freshet plan --pages 1e8 --crawls-per-second 1e3
      freshet plan --pages 1e9 --crawls-per-second 1e4 --memory 64 --coefficients
      freshet plan --pages 1e7 --crawls-per-second 100 --values > sizes.yaml
      freshet plan --pages 1e7 --crawls-per-second 100 --coefficient scheduler_page_bytes=300
    """
    # Commands load what they need.
    from services.cli import plan_answer  # noqa: PLC0415
    from services.plan.servers import Load  # noqa: PLC0415
    from services.plan.sizing import GI, PAGES_A_HOST, TooLarge, Wanted, plan  # noqa: PLC0415
    from services.plan.values import values_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    coefficients = _coefficients(measured)
    cost = {name: found.value for name, found in coefficients.items()} | _given(given, coefficients)
    settings = load_settings()
    load = Load(
        pages,
        pages / PAGES_A_HOST if hosts is None else hosts,
        crawls_per_second,
        crawls_per_second / 2 if signals_per_second is None else signals_per_second,
        settings.observations_kept_days,
        retention_days,
        copies,
    )
    wanted = Wanted(
        load,
        memory * GI,
        settings.kafka_session_timeout_seconds,
        settings.estimator_resident_pages,
    )
    try:
        sizes = plan(wanted, cost)
    except TooLarge as error:
        raise UserError(str(error)) from error
    values = values_of(sizes, _not_default(settings))
    described = [
        coefficients[name].described() | {"value": value} | _own(coefficients[name].value, value)
        for name, value in cost.items()
    ]
    if as_json:
        show_json(plan_answer.as_json(wanted, sizes, values) | {"coefficients": described})
    elif as_values:
        click.echo(plan_answer.as_yaml(values), nl=False)
    else:
        plan_answer.show_plan(sizes, values)
        plan_answer.show_coefficients(described, in_full=shows_all)


def _not_default(settings: "Settings") -> dict[str, float]:
    """Of the settings that a plan goes by, those that somebody has set, by their variables."""
    from shared.runtime.setting_kinds import ENV_PREFIX  # noqa: PLC0415

    return {
        f"{ENV_PREFIX}{name.upper()}": getattr(settings, name)
        for name in _GOES_BY
        if getattr(settings, name) != type(settings).model_fields[name].default
    }


def _coefficients(file: Path | None) -> "Coefficients":
    """The shipped ones, and over them those of a file."""
    from services.plan.coefficients import NotMeasured, read_measured  # noqa: PLC0415

    try:
        return read_measured() | ({} if file is None else read_measured(file))
    except NotMeasured as error:
        raise UserError(str(error)) from error


def _given(given: tuple[str, ...], known: "Coefficients") -> dict[str, float]:
    """Coefficients of the command line."""
    found = {}
    for item in given:
        name, _, value = item.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise UserError(f"--coefficient {item}: write NAME=VALUE") from None
        if name not in known or not 0 <= found[name] < float("inf"):
            raise UserError(
                f"--coefficient {item}: NAME is one of {', '.join(known)}, VALUE not below 0"
            )
    return found


def _own(measured: float, value: float) -> dict[str, Any]:
    """Nobody measured what the command line says."""
    if value == measured:
        return {}
    return {"command": "--coefficient", "date": None, "machine": None, "commit": None}
