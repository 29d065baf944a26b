"""One machine of a planet, run on this one, and what it costs: the coefficients of a plan."""

import asyncio
import datetime as dt
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click

from services.bench import planet_loop, storage
from services.bench.coordinator_solver import measure_solver
from services.bench.loop import SIGNALS_PER_CRAWL
from services.bench.planet_figures import costs, rounded, seen
from services.bench.planet_loop import Machine, Part
from services.bench.real_system import scratch_folder
from services.bench.recovery_kill import kill_one
from services.plan.coefficients import (
    Coefficient,
    Coefficients,
    NotMeasured,
    Run,
    read_measured,
    write_measured,
)
from shared.runtime.settings import load_settings
from shared.terminal.numbers import Number
from shared.terminal.output import show, show_json

PARTS: Final = ("machine", "disk", "failover")

SMALL: Final = 0.125
"""Pages of the small machine, as a share of the other's: what is left of the costs are those of a
machine without pages."""

MORE_SIGNALS: Final = 4.0
"""Times the other's, on the small machine: so what a signal costs is told from what it costs that
there are any."""

DISK_PAGES: Final = 100_000
KILL_PAGES: Final = 40_000
KILL_RATE: Final = 100.0

_GI: Final = 1024.0**3


@click.command("planet")
@click.option("--pages", type=Number(64_000, 1e12), default=2e7, show_default=True)
@click.option("--crawls-per-second", type=Number(64, 1e6), default=1e4, show_default=True)
@click.option("--machines", type=click.IntRange(1, 4096), default=64, show_default=True)
@click.option("--shards", type=click.IntRange(1, 4096), default=256, show_default=True)
@click.option(
    "--seconds", type=Number(min=5), default=30.0, show_default=True,
    help="Of each of the eight windows that are measured.",
)  # fmt: skip
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this one.")
@click.option(
    "--write", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="The coefficients, for `freshet plan --measured`; others that FILE has stay.",
)  # fmt: skip
@click.option(
    "--beside", default="nothing that was said", metavar="TEXT",
    help="What this machine did meanwhile; stands in FILE.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(
    pages: float,
    crawls_per_second: float,
    machines: int,
    shards: int,
    seconds: float,
    parts: tuple[str, ...],
    write: Path | None,
    beside: str,
    as_json: bool,
) -> None:
    """Run what one of many machines would do, and add up what all of them would take.

    Of the pages, crawls and shards this machine has its part: everything that `freshet run` starts,
    with pages whose histories are full. A smaller one is run first, so that what a page costs can
    be told from what a process costs. The coordinator hears the reports of the shards here as if
    they were of all shards. Then the disk that pages take, and a scheduler that is killed.

    By default it is a planet of 20 million pages, which takes some minutes; one of full size,
    `--pages 1e9`, takes an hour on two busy cores, and 8 GB of memory beside the simulated web's.

    \b
    Examples:
      freshet bench planet --write measured.yml && freshet plan --measured measured.yml ...
      freshet bench planet --pages 1e9 --crawls-per-second 1e4 --json
    """
    known = {} if write is None else _known(write)
    crawls = crawls_per_second / machines
    own = Part(
        round(pages / machines), max(shards // machines, 1), crawls, SIGNALS_PER_CRAWL * crawls
    )
    answer: dict[str, Any] = {}
    found: dict[str, float] = {}
    wanted = parts or PARTS
    if "machine" in wanted:
        few = Part(round(SMALL * own.pages), own.shards, crawls, MORE_SIGNALS * own.signals)
        small, large = _machine(few, seconds), _machine(own, seconds)
        found |= costs(small, large) | _coordinator(large, shards)
        answer["machine"] = seen(large)
        answer["machines"] = {"machines": machines, **_added_up(answer["machine"], machines)}
    if "disk" in wanted:
        found |= _disk(min(own.pages, DISK_PAGES))
    if "failover" in wanted:
        answer["failover"] = _kill()
        found |= _handover(answer["failover"])
    answer["coefficients"] = found
    if write is not None:
        run = _run(beside)
        fresh = {name: Coefficient(name, value, run) for name, value in found.items()}
        write_measured(write, known | fresh)
    if as_json:
        show_json(answer)
    else:
        show(answer, as_json=False)


def _machine(part: Part, seconds: float) -> Machine:
    with scratch_folder() as folder:
        return planet_loop.run(folder, part, seconds)


def _added_up(machine: Mapping[str, Any], machines: int) -> dict[str, float]:
    """What as many machines use together; their broker and their PostgreSQL are not one."""
    workers = [name for name in machine["memory_bytes"] if name != "postgres"]
    return {
        "memory_bytes": machines * sum(machine["memory_bytes"][name] for name in workers),
        "cores": rounded(machines * sum(machine["cores"][name] for name in workers)),
        "postgres_cores": rounded(machines * machine["cores"]["postgres"]),
        "postgres_log_bytes_per_second": machines * machine["postgres_log_bytes_per_second"],
        "kafka_bytes_per_second": machines * machine["kafka_bytes_per_second"],
    }


def _coordinator(machine: Machine, shards: int) -> dict[str, float]:
    """What a shard costs the coordinator, from the machine's reports as if they were of all."""
    measured = measure_solver(shards, reports=machine.reports)
    a_round = sum(measured[part]["median"] for part in ("reports_ms", "decision_ms", "picture_ms"))
    rounds = 1.0 / load_settings().report_seconds
    return {"coordinator_cores_a_shard": rounded(rounds * a_round / 1e3 / shards)}


def _disk(pages: int) -> dict[str, float]:
    measured = storage.run(pages)
    return {
        "pages_disk_bytes": measured["bytes_a_page"]["pages"],
        "urls_disk_bytes": measured["bytes_a_page"]["page_urls"],
        "keys_disk_bytes": measured["bytes_of_keys_a_page"],
        "observation_disk_bytes": measured["bytes_a_page"]["observations"],
    }


def _kill() -> dict[str, Any]:
    with scratch_folder() as folder:
        return asyncio.run(kill_one(folder, KILL_PAGES, KILL_RATE))


def _handover(killed: Mapping[str, Any]) -> dict[str, float]:
    """Few pages: loading them takes next to nothing of it."""
    seconds = killed["seconds_until_served"]
    if seconds is None:
        raise click.ClickException("a killed scheduler's shards were not served again in time")
    left = seconds - load_settings().kafka_session_timeout_seconds
    return {"handover_seconds": rounded(max(left, 0.0))}


def _known(file: Path) -> Coefficients:
    """What a file has that will be written, looked at before hours go into measuring."""
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise click.ClickException(f"{file} cannot be written")
    try:
        return read_measured(file) if file.exists() else {}
    except NotMeasured as error:
        raise click.ClickException(str(error)) from error


def _run(beside: str) -> Run:
    context = click.get_current_context()
    given = [
        f"--{name.replace('_', '-')} {value:g}"
        for name, value in context.params.items()
        if name in {"pages", "crawls_per_second", "machines", "shards", "seconds"}
    ]
    given += [f"--part {part}" for part in context.params["parts"]]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GI
    return Run(
        command=f"freshet bench planet {' '.join(given)}",
        date=dt.datetime.now(dt.UTC).date(),
        machine=f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB; beside it {beside}",
        commit=_commit(),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    """Of this program: the repository's, or the version where there is none."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603 - fixed
    except (OSError, subprocess.CalledProcessError):
        return version("freshet")
    return done.stdout.strip()
