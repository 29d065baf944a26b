"""Throughput of each worker and of the whole loop, on an embedded database and the local broker."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from deploy.local.kafka import LocalBroker
from deploy.local.postgres import EmbeddedPostgres
from services.bench import estimator_pipeline, ingester_pipeline, scheduler_pipeline
from services.cli.output import show

LOOP_CRAWLS_PER_SECOND = 2_000.0
LOOP_DAYS_PER_SECOND = 0.1
HELD_SHARE = 0.99
"""A loop that is asked for so much of its budget, and answers it all, holds it."""

PARTS = ("ingester", "scheduler", "estimator", "loop")


@click.command("pipeline")
@click.option("--pages", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=5), default=60.0, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    default=LOOP_CRAWLS_PER_SECOND,
    show_default=True,
    help="Crawls per second of the wall that the loop is to hold.",
)
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this one.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(pages: int, seconds: float, rate: float, parts: tuple[str, ...], as_json: bool) -> None:
    """Measure the workers one by one, and then everything together.

    The estimator applies outcomes to PostgreSQL, the scheduler emits requests, the ingester passes
    signals, each alone on this machine; then `freshet run` holds a rate with a generated world.

    \b
    Examples:
      freshet bench pipeline --json
      freshet bench pipeline --pages 100000 --seconds 20 --part loop
    """
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "ingester": measure_ingester,
        "scheduler": lambda: measure_scheduler(pages),
        "estimator": lambda: measure_estimator(pages),
        "loop": lambda: measure_loop(pages, rate, seconds),
    }
    answer: dict[str, Any] = {"pages": pages}
    for part in parts or PARTS:
        answer |= measures[part]()
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


def measure_loop(pages: int, rate: float, seconds: float) -> dict[str, Any]:
    """Everything at once: a generated world, whose crawls a second count once they are applied."""
    per_day = rate / LOOP_DAYS_PER_SECOND
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder:
        report_file = Path(folder) / "report.json"
        options = {
            "--page-count": pages,
            "--seconds": seconds,
            "--speed": LOOP_DAYS_PER_SECOND,
            "--crawls-per-day": per_day,
            "--data-dir": folder,
            "--report": report_file,
        }
        arguments = [str(part) for option in options.items() for part in option]
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "services.cli.main", "run", "--no-view", *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            raise click.ClickException(f"the loop did not run: {done.stderr}")
        report: dict[str, Any] = json.loads(report_file.read_text())
    achieved = report["achieved_rate"]["steady_crawls_per_second"]
    return {
        "loop_crawls_per_second": round(achieved, 1),
        "loop": {
            "asked_per_second": rate,
            "seconds": report["seconds"],
            "held": achieved >= HELD_SHARE * rate and report["unanswered"] == 0,
            **{
                name: report[name]
                for name in ("crawls", "unanswered", "seconds_over_budget", "latency_seconds")
            },
        },
    }


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
