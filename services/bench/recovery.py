"""How soon a shard is served again: the time to load it, and a scheduler that is killed."""

import asyncio
from typing import Any, Final

import click

from services.bench import recovery_load
from services.bench.real_system import environment, scratch_folder
from services.bench.recovery_kill import kill_one
from shared.terminal.numbers import Number
from shared.terminal.output import show

LOAD_SECONDS: Final = {1_000_000: 5.0, 10_000_000: 40.0}
"""A shard of so many pages is to be loaded in less."""

SESSION_SECONDS: Final = 6.0
SERVED_SECONDS: Final = 10.0
"""Beyond the session timeout: until every shard of a killed scheduler is served again."""

PARTS = ("load", "kill")
_SESSION_VARIABLE: Final = "FRESHET_KAFKA_SESSION_TIMEOUT_SECONDS"


@click.command("recovery")
@click.option(
    "--pages",
    "sizes",
    type=click.IntRange(min=100),
    multiple=True,
    default=(1_000_000,),
    show_default=True,
    help="Of the shard that is loaded; may be given again.",
)
@click.option("--in-flight", type=click.IntRange(min=0), default=100_000, show_default=True)
@click.option("--kill-pages", type=click.IntRange(min=1000), default=1_000_000, show_default=True)
@click.option("--rate", type=Number(min=10), default=500.0, show_default=True)
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this one.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(
    sizes: tuple[int, ...],
    in_flight: int,
    kill_pages: int,
    rate: float,
    parts: tuple[str, ...],
    as_json: bool,
) -> None:
    """Load a shard from PostgreSQL and Kafka until it picks, and kill -9 one of two schedulers.

    What counts for the kill is the time from it to the first request of each of the dead
    scheduler's shards, by another one; the session timeout is six seconds.

    \b
    Examples:
      freshet bench recovery --json
      freshet bench recovery --pages 1000000 --pages 10000000 --part load --json
    """
    answer: dict[str, Any] = {}
    if not parts or "load" in parts:
        answer["load"] = [_load(pages, in_flight) for pages in sizes]
    if not parts or "kill" in parts:
        answer["kill"] = _kill(kill_pages, rate)
    measured = [*answer.get("load", []), *([answer["kill"]] if "kill" in answer else [])]
    answer["passed"] = all(part["passed"] for part in measured)
    show(answer, as_json=as_json)


def _load(pages: int, in_flight: int) -> dict[str, Any]:
    answer = recovery_load.run(pages, in_flight)
    allowed = min(
        (seconds for size, seconds in LOAD_SECONDS.items() if pages <= size),
        default=pages * max(LOAD_SECONDS.values()) / max(LOAD_SECONDS),
    )
    return {**answer, "allowed_seconds": allowed, "passed": answer["load_seconds"] <= allowed}


def _kill(pages: int, rate: float) -> dict[str, Any]:
    with environment(_SESSION_VARIABLE, str(SESSION_SECONDS)), scratch_folder() as folder:
        answer = asyncio.run(kill_one(folder, pages, rate))
    allowed = SESSION_SECONDS + SERVED_SECONDS
    seconds = answer["seconds_until_served"]
    return {
        "session_timeout_seconds": SESSION_SECONDS,
        **answer,
        "allowed_seconds": allowed,
        "passed": seconds is not None and seconds <= allowed,
    }
