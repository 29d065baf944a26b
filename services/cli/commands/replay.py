"""`freshet replay`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress

from services.cli.errors import UserError
from services.replay.as_they_come import DEFAULT, FRESHET, compare_as_they_come
from services.replay.plots import check_picture, draw_comparison
from services.replay.policies import policy_names
from services.replay.polled import GRID_DAYS, compare_rhythms
from services.replay.replay import Told, compare
from services.replay.scenarios import SCENARIOS
from services.replay.slots import Budget
from services.replay.trace import Trace, read_trace
from shared.terminal.numbers import Number
from shared.terminal.output import show_json, show_rows

POLLED = "polled"
AS_THEY_COME = "as-they-come"
HOST_LIMITS = "host-limits"

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--pages", "pages_file", type=_FILE, required=True, help="url, importance.")
@click.option(
    "--events",
    "events_file",
    type=_FILE,
    required=True,
    help="time_days, url, event (change, signal or request), source.",
)
@click.option(
    "--crawls-per-day",
    type=Number(min=0, min_open=True),
    required=True,
    help="The budget.",
)
@click.option(
    "--days",
    type=Number(min=0, min_open=True),
    help="Length of the replay; absent: to the last event.",
)
@click.option(
    "--policy",
    metavar="P[,P...]",
    help="Policies to compare; all: every one. [default: freshet; as-they-come has peers, too]",
)
@click.option("--oracle", is_flag=True, help="Value policies know the trace's own parameters.")
@click.option(
    "--scenario",
    type=click.Choice([*SCENARIOS, POLLED, AS_THEY_COME]),
    help="Bend the trace in this way; polled: signals are known by polls alone, which cost crawls; "
    "as-they-come: in nine ways, one after the other.",
)
@click.option(
    "--poll-every",
    multiple=True,
    type=Number(min=0, min_open=True),
    default=GRID_DAYS,
    show_default=True,
    help="Of polled: days of a fixed interval to compare with.",
)
@click.option(
    "--source-per",
    type=click.Choice(["host", "site"]),
    default="host",
    show_default=True,
    help="Of polled: what one sitemap tells of.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw freshness over time, and crawls against change rate (.svg, .png).",
)
def command(
    pages_file: Path,
    events_file: Path,
    crawls_per_day: float,
    days: float | None,
    policy: str | None,
    scenario: str | None,
    poll_every: tuple[float, ...],
    source_per: str,
    plot: Path | None,
    *,
    oracle: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Replay a recorded trace through the production formulas, with a virtual clock.

    Parameters are learned online from crawl outcomes, as in production, unless --oracle. Files are
    CSV (plain or gzip) or Parquet.

    \b
    Examples:
      freshet replay --pages pages.csv --events events.csv --crawls-per-day 200
      freshet replay --pages pages.csv --events events.csv --crawls-per-day 160 \\
          --policy freshet,freshet-no-signals,nutch-tuned --plot freshness.svg
      freshet replay --pages pages.csv --events events.csv --crawls-per-day 200 \\
          --scenario polled --source-per site --poll-every 0.3 --poll-every 1
      freshet replay --pages pages.csv --events events.csv --crawls-per-day 200 \\
          --scenario as-they-come
      freshet replay --pages pages.csv --events events.csv --crawls-per-day 200 --policy all
    """
    _refuse_what_is_not_heeded(scenario)
    try:
        usual = DEFAULT if scenario == AS_THEY_COME else (FRESHET,)
        limits = scenario == HOST_LIMITS
        names = list(usual) if policy is None else policy_names(policy, limits=limits)
        if plot is not None:
            check_picture(plot)
    except ValueError as error:
        raise UserError(str(error)) from error
    try:
        trace = read_trace(pages_file, events_file, days)
        budget = Budget.constant(crawls_per_day)
        if scenario == POLLED:
            _show_polled(trace, budget, poll_every, as_json=as_json, by_host=source_per == "host")
            return
        if scenario == AS_THEY_COME:
            _show_as_they_come(trace, budget, names, seed, as_json=as_json)
            return
        if scenario is not None:
            trace, budget = SCENARIOS[scenario](trace, budget, seed)
        with _bar(names) as told:
            found = compare(trace, budget, names, seed=seed, oracle=oracle, told=told)
    except ValueError as error:
        raise UserError(str(error)) from error
    if plot is not None:
        draw_comparison(found, plot)
    if as_json:
        show_json(found.report() | {"scenario": scenario})
    else:
        show_rows(found.rows(), as_json=False, empty="nothing was replayed")


def _refuse_what_is_not_heeded(scenario: str | None) -> None:
    """Raises UserError if an option was given that the scenario has no use for."""
    context = click.get_current_context()
    needless = {
        POLLED: {"policy", "oracle", "plot", "seed"},
        AS_THEY_COME: {"oracle", "plot", "poll_every", "source_per"},
    }.get(scenario or "", {"poll_every", "source_per"})
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in needless and source is not ParameterSource.DEFAULT:
            where = f"with --scenario {scenario}" if scenario else f"without --scenario {POLLED}"
            raise UserError(f"{option.opts[0]} has no effect {where}: leave it out")


def _show_polled(
    trace: Trace, budget: Budget, every_days: Sequence[float], *, as_json: bool, by_host: bool
) -> None:
    console = Console(stderr=True)
    with console.status("") as status:
        found = compare_rhythms(trace, budget, every_days, by_host=by_host, told=status.update)
    if as_json:
        show_json(found.report())
    else:
        show_rows(found.rows, as_json=False, empty="nothing was replayed")


def _show_as_they_come(
    trace: Trace, budget: Budget, names: Sequence[str], seed: int, *, as_json: bool
) -> None:
    console = Console(stderr=True)
    with console.status("") as status:

        def told(scenario: str, policy: str) -> None:
            status.update(f"{scenario}: {policy}")

        found = compare_as_they_come(trace, budget, names, seed=seed, told=told)
    if as_json:
        show_json(found.report())
        return
    show_rows(found.rows, as_json=False, empty="nothing was replayed")
    click.echo()
    show_rows(found.summary(), as_json=False, empty="there is nothing to compare with")


@contextmanager
def _bar(names: list[str]) -> Iterator[Told]:
    """A progress bar on standard error, if someone watches it."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=float(len(names)))

        def told(name: str, share: float) -> None:
            done = names.index(name) + share
            progress.update(task, description=name, completed=done)

        yield told
