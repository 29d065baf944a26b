"""`freshet kernels`."""

import gc
from collections.abc import Callable
from multiprocessing import get_context
from typing import Final

import click

from services.cli.errors import UserError


@click.command()
def command() -> None:
    """Compile what the workers run, before they are started.

    Workers compile what they need before they say that they are ready, which takes a minute of two
    cores where nothing of this version is compiled yet; until then the shards of a scheduler wait.
    An image that is built with this, and a machine on which it is called between the installation
    of a version and the restart of its workers, spare them that. What is compiled already is left
    as it is. So are the tables of crawl rates, which a scheduler makes once, beside its work.

    It is compiled for this machine's processor. With NUMBA_CPU_NAME=generic, which the workers then
    need as well, it is compiled for any of its kind, and a few percent slower.

    \b
    Examples:
      freshet kernels
      NUMBA_CPU_NAME=generic freshet kernels
    """
    click.echo("compiling what the workers run: a minute where nothing is compiled yet", err=True)
    # A compiler uses one core; what several kinds need at one moment is compiled by each.
    context = get_context("spawn")
    running = {name: context.Process(target=compile_kind) for name, compile_kind in KINDS.items()}
    for process in running.values():
        process.start()
    for name, process in running.items():
        process.join()
        if process.exitcode:
            raise UserError(f"{name}: not compiled, as is said above")
        click.echo(f"compiled: {name}", err=True)


def _search_seldom() -> None:
    """Leave what is loaded alone, and search the rest for garbage seldom.

    What is loaded stays, as in a worker: looking through it for garbage is a seventh of the
    compiling. And little of what a compiler makes is garbage that only a search finds: it is
    searched for seldom, which is a twelfth of the rest, for 4 % more memory.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _compile_scheduler() -> None:
    from services.scheduler.demand.kept_tables import rate_tables  # noqa: PLC0415 - its own process
    from services.scheduler.warm_up import warm_up  # noqa: PLC0415

    _search_seldom()
    warm_up()
    rate_tables()


def _compile_others() -> None:
    from services.estimator.compilation import warm_up  # noqa: PLC0415
    from services.ingester.debounce import Debouncer  # noqa: PLC0415
    from services.scheduler.warm_up import warm_up as warm_scheduler  # noqa: PLC0415
    from shared.contracts.objectives import DEFAULT  # noqa: PLC0415
    from shared.rules.host_objectives import HostObjectives  # noqa: PLC0415

    _search_seldom()
    warm_up()
    Debouncer(1.0)
    # Last: what both kinds of schedulers run is there by now.
    warm_scheduler(HostObjectives({DEFAULT: "harmonic"}))


KINDS: Final[dict[str, Callable[[], None]]] = {
    "the scheduler": _compile_scheduler,
    "the estimator, the ingester, and the scheduler's other objectives": _compile_others,
}
"""What is compiled, each in a process of its own."""
