"""`freshet worker NAME`."""

import gc
import importlib

import click

WORKERS = (
    "ingester",
    "scheduler",
    "estimator",
    "coordinator",
    "receiver",
    "poller",
    "frontier",
    "discoverer",
)


@click.command()
@click.argument("name", type=click.Choice(WORKERS))
def command(name: str) -> None:
    """Run one worker until it is stopped.

    It takes everything from the settings (`freshet settings`): where Kafka and PostgreSQL are, its
    port for /healthz, /readyz and /metrics, its instance name, which must differ between replicas.
    Ctrl-C or SIGTERM: the batch at hand is finished, nothing is lost.

    \b
    Examples:
      freshet worker coordinator
      FRESHET_INSTANCE=scheduler-2 FRESHET_HTTP_PORT=7002 freshet worker scheduler
    """
    # What it loads stays: looking through it for garbage meanwhile is a seventh of the loading.
    gc.disable()
    module = importlib.import_module(f"services.{name}.worker")
    gc.freeze()
    gc.enable()
    module.main()
