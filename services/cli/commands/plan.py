"""`freshet plan`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from services.cli.errors import UserError
from shared.terminal.output import show_json, show_rows

if TYPE_CHECKING:
    from services.cli.sizing import Plan, Wanted


@click.command()
@click.option("--pages", type=click.FloatRange(1, 1e12), required=True, help="1e9, say.")
@click.option("--crawls-per-second", type=click.FloatRange(0.001, 1e6), required=True)
@click.option(
    "--signals-per-second",
    type=click.FloatRange(0, 1e7),
    help="Absent: half as many as crawls, as where the costs were measured.",
)
@click.option(
    "--memory", type=click.FloatRange(1, 4096), default=32.0, show_default=True, metavar="GIB",
    help="That one replica may have at most.",
)  # fmt: skip
@click.option("--copies", type=click.IntRange(1, 9), default=3, show_default=True, help="On Kafka.")
@click.option("--coefficient", "given", multiple=True, metavar="NAME=VALUE", help="Of yours.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON, with the coefficients.")
def command(
    pages: float,
    crawls_per_second: float,
    signals_per_second: float | None,
    memory: float,
    copies: int,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """How large an installation must be: replicas, shards, memory, processors and disk.

    It adds up coefficients that were measured, and names each with the command that measured it.
    The answer ends with the lines for the chart's values.yaml.

    \b
    Examples:
      freshet plan --pages 1e8 --crawls-per-second 1e3
      freshet plan --pages 1e9 --crawls-per-second 1e4 --memory 64 --json
      freshet plan --pages 1e7 --crawls-per-second 100 --coefficient scheduler_page_bytes=300
    """
    from services.cli.sizing import GI, TooLarge, Wanted, plan, read_measured  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - commands load what they need

    measured = read_measured()
    cost = {name: coefficient.value for name, coefficient in measured.items()} | _given(
        given, measured
    )
    signals = crawls_per_second / 2 if signals_per_second is None else signals_per_second
    kept = load_settings().observations_kept_days
    wanted = Wanted(pages, crawls_per_second, signals, memory * GI, kept, copies)
    try:
        sizes = plan(wanted, cost)
    except TooLarge as error:
        raise UserError(str(error)) from error
    coefficients = [
        {"name": n, "value": cost[n], "what": c.what, "command": c.command}
        for n, c in measured.items()
    ]
    if as_json:
        show_json(_answer(wanted, sizes) | {"coefficients": coefficients})
        return
    _show(sizes, coefficients)


def _given(given: tuple[str, ...], known: Mapping[str, Any]) -> dict[str, float]:
    """Coefficients of the command line."""
    found = {}
    for item in given:
        name, _, value = item.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise UserError(f"--coefficient {item}: write NAME=VALUE") from None
        if name not in known or not 0 < found[name] < float("inf"):
            raise UserError(
                f"--coefficient {item}: NAME is one of {', '.join(known)}, VALUE above 0"
            )
    return found


def _answer(wanted: "Wanted", sizes: "Plan") -> dict[str, Any]:
    from services.cli.sizing import values_of  # noqa: PLC0415

    return {
        "pages": wanted.pages,
        "crawls_per_second": wanted.crawls_per_second,
        "signals_per_second": wanted.signals_per_second,
        "shards": sizes.shards,
        "shard_load_seconds": sizes.shard_load_seconds,
        "workers": {
            name: {"replicas": w.replicas, "cores": w.cores, "memory_bytes": w.memory_bytes}
            for name, w in sizes.workers.items()
        },
        "postgres": {"cores": sizes.postgres_cores, "disk_bytes": dict(sizes.postgres_disk_bytes)},
        "kafka": {"disk_bytes": sizes.kafka_disk_bytes, "partitions": sizes.shards},
        "values": values_of(sizes),
    }


def _show(sizes: "Plan", coefficients: list[dict[str, Any]]) -> None:
    import yaml  # noqa: PLC0415

    from services.cli.sizing import GI, values_of  # noqa: PLC0415

    rows = [
        {
            "part": name,
            "replicas": worker.replicas,
            "cores": worker.cores,
            "memory GiB": worker.memory_bytes / GI,
            "disk GiB": None,
        }
        for name, worker in sizes.workers.items()
    ]
    disk = sum(sizes.postgres_disk_bytes.values()) / GI
    rows.append(_server("postgres", sizes.postgres_cores, disk))
    rows.append(_server("kafka", None, sizes.kafka_disk_bytes / GI))
    click.echo(
        f"{sizes.shards} shards, each served {sizes.shard_load_seconds:.0f} s after it moves\n"
    )
    show_rows(rows, as_json=False, empty="")
    click.echo("\nof PostgreSQL's disk:")
    for part, size in sizes.postgres_disk_bytes.items():
        click.echo(f"  {part:<13} {size / GI:.6g} GiB")
    click.echo("\n# values.yaml")
    click.echo(yaml.safe_dump(values_of(sizes), sort_keys=False))
    click.echo("added up from:")
    show_rows(coefficients, as_json=False, empty="")


def _server(name: str, cores: float | None, disk: float) -> dict[str, Any]:
    return {"part": name, "replicas": None, "cores": cores, "memory GiB": None, "disk GiB": disk}
