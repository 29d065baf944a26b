"""Throughput of each worker and of the whole loop, on an embedded database and the local broker."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from deploy.local.kafka import LocalBroker
from deploy.local.postgres import EmbeddedPostgres
from services.bench import estimator_pipeline, ingester_pipeline, loop, scheduler_pipeline
from services.bench.flame_graphs import NotDrawn
from services.bench.real_system import scratch_folder
from shared.terminal.numbers import Number
from shared.terminal.output import show

LOOP_CRAWLS_PER_SECOND = (2_000.0, 4_000.0, 6_000.0, 10_000.0)

PARTS = ("ingester", "scheduler", "estimator", "loop")


@click.command("pipeline")
@click.option("--pages", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--seconds", type=Number(min=5), default=60.0, show_default=True)
@click.option(
    "--rate",
    "rates",
    type=Number(min=1),
    multiple=True,
    default=LOOP_CRAWLS_PER_SECOND,
    show_default=True,
    help="Crawls per second of the wall that the loop is to hold; may be given again.",
)
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this one.")
@click.option(
    "--profile",
    "flame_graphs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Draw a flame graph of each worker of the loop into this folder; by py-spy.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(
    pages: int,
    seconds: float,
    rates: tuple[float, ...],
    parts: tuple[str, ...],
    flame_graphs: Path | None,
    as_json: bool,
) -> None:
    """Measure the workers one by one, and then everything together.

    The estimator applies outcomes to PostgreSQL, the scheduler emits requests, the ingester passes
    signals, each alone on this machine; then everything that `freshet run` starts holds one rate
    after the other with a generated world, and the processor time of each process is told.

    \b
    Examples:
      freshet bench pipeline --json
      freshet bench pipeline --pages 100000 --seconds 20 --part loop --rate 500
      freshet bench pipeline --part loop --rate 4000 --profile flames
    """
    if flame_graphs is not None and "loop" not in (parts or PARTS):
        raise click.UsageError("--profile draws the workers of the loop: add --part loop")
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "ingester": measure_ingester,
        "scheduler": lambda: measure_scheduler(pages),
        "estimator": lambda: measure_estimator(pages),
        "loop": lambda: measure_loop(pages, rates, seconds, flame_graphs),
    }
    answer: dict[str, Any] = {"pages": pages}
    for part in parts or PARTS:
        try:
            answer |= measures[part]()
        except NotDrawn as error:
            raise click.ClickException(str(error)) from error
    show(answer, as_json=as_json)


def measure_ingester() -> dict[str, Any]:
    """Signals a second from `signals` to acknowledged `page-signals`."""
    with _broker() as bootstrap_servers:
        result = ingester_pipeline.run(bootstrap_servers=bootstrap_servers)
    return {"signals_per_second": result["signals_per_second"], "ingester": result}


def measure_scheduler(pages: int) -> dict[str, Any]:
    """Requests a second, from slots to acknowledged `crawl-requests`."""
    with _broker() as bootstrap_servers:
        result = scheduler_pipeline.run(pages, bootstrap_servers=bootstrap_servers)
    return {"requests_per_second": result["requests_per_second"], "scheduler": result}


def measure_estimator(pages: int) -> dict[str, Any]:
    """Outcomes a second, decoded, learned from and committed."""
    with _database() as url:
        result = estimator_pipeline.run(url, pages)
    return {"outcomes_per_second": result["outcomes_per_second"], "estimator": result}


def measure_loop(
    pages: int, rates: Sequence[float], seconds: float, flame_graphs: Path | None = None
) -> dict[str, Any]:
    """Everything at once: a generated world, at rising rates."""
    with scratch_folder() as folder:
        answer = loop.run(folder, pages, rates, seconds, flame_graphs)
    return {"loop_crawls_per_second": answer["held_per_second"], "loop": answer}


@contextlib.contextmanager
def _broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder:
        broker = LocalBroker(Path(folder))
        broker.start()
        try:
            yield broker.bootstrap_servers
        finally:
            broker.stop()


@contextlib.contextmanager
def _database() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder:
        postgres = EmbeddedPostgres(Path(folder))
        postgres.start()
        try:
            yield postgres.create_database("freshet")
        finally:
            postgres.stop()
