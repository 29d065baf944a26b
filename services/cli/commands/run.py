"""`freshet run`."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.commands.bandwidth import Rate
from services.cli.errors import UserError
from services.cli.fleet_options import FLEET_OPTIONS, fleet_plan
from shared.terminal.numbers import Number
from shared.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from services.run.options import RunOptions, WorldKind


class Step(click.ParamType):
    """`T:R`: from day T on, R crawls in the unit of the budget that was given."""

    name = "T:R"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Day and number, or click's error."""
        if isinstance(value, tuple):
            return value
        day, separator, rate = str(value).partition(":")
        try:
            step = float(day), float(rate)
        except ValueError:
            separator = ""
            step = 0.0, 0.0
        if not separator or not all(math.isfinite(number) and number >= 0 for number in step):
            self.fail(f"{value!r} is not like 30:400 (from day 30 on, 400 crawls)", param, ctx)
        return step


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_MORE_THAN_0 = Number(min=0, min_open=True)

_OPTIONS: list[Callable[[Any], Any]] = [
    click.option(
        "--world",
        type=click.Choice(["generated", "none"]),
        default="generated",
        show_default=True,
        help="none: the system alone, on the real time; connect your own crawler.",
    ),
    click.option(
        "--pages", "pages_file", type=_FILE, help="Trace: url, importance (CSV, Parquet)."
    ),
    click.option(
        "--events", "events_file", type=_FILE, help="Trace: time_days, url, event, source."
    ),
    click.option("--page-count", type=click.IntRange(min=1), help="Pages of a generated world."),
    click.option("--days", type=_MORE_THAN_0, help="Days to simulate; absent: until Ctrl-C."),
    click.option("--seconds", type=_MORE_THAN_0, help="The same in seconds of the wall."),
    click.option("--speed", type=_MORE_THAN_0, help="Days per second. [1; generated: 0.25]"),
    click.option("--crawls-per-day", type=Number(min=0), help="The budget."),
    click.option("--crawls-per-second", type=Rate(), help="The budget, by the clock's seconds."),
    click.option(
        "--bandwidth-at",
        "steps",
        type=Step(),
        multiple=True,
        help="From day T on the budget is R, in the unit of the option above. Repeatable.",
    ),
    click.option("--policy", type=click.Choice(["crawl-value", "uniform"]), help="How to choose."),
    click.option(
        "--broker",
        type=click.Choice(["local", "apache"]),
        default="local",
        show_default=True,
        help="apache: Apache Kafka from Maven Central; needs Java and Maven.",
    ),
    click.option("--partitions", type=click.IntRange(1, 4096), help="Shards. [8]"),
    click.option("--schedulers", type=click.IntRange(1, 64), default=1, show_default=True),
    *FLEET_OPTIONS,
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
    click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="JSON file."),
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(".freshet"),
        show_default=True,
        help="Data and logs. A simulated run begins with empty data.",
    ),
    click.option("--no-view", is_flag=True, help="Status lines instead of the live view."),
    click.option("--json", "as_json", is_flag=True, help="Print the report as JSON at the end."),
]


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command()
@_with_options
def command(**given: Any) -> None:
    """Run the whole system on this machine, with a simulated web.

    PostgreSQL, a broker, the four workers and a world of pages, pingers and crawlers start, and a
    live view shows how fresh the copy is kept. Nothing needs to be installed. Where
    KAFKA_BOOTSTRAP_SERVERS or DATABASE_URL are set, those servers are used instead: that database
    must be of this version or have no tables yet, and no pages either where a web is simulated.
    Other commands talk to a run after `. .freshet/run/environment`; with `--world none` after
    `. .freshet/system/environment`.

    \b
    Examples:
      freshet run
      freshet run --page-count 100000 --crawls-per-day 20000 --seconds 60 --report report.json
      freshet run --pages pages.csv.gz --events events.csv.gz --days 60 --crawls-per-day 200
      freshet run --crawls-per-day 2000 --bandwidth-at 3:4000 --days 6 --no-view --json
      freshet run --fleet-capacity 50 --fleet-silent 0.1 --fleet-storms 0.05
      freshet run --world none
    """
    import asyncio  # noqa: PLC0415 - commands load what they need

    from services.cli.import_bar import ImportBar  # noqa: PLC0415
    from services.run.report import summary  # noqa: PLC0415
    from services.run.session import Session  # noqa: PLC0415
    from services.run.view import Watcher  # noqa: PLC0415
    from shared.runtime.logs import configure_logs  # noqa: PLC0415
    from shared.store.deployment import StoreMismatch  # noqa: PLC0415
    from shared.terminal.output import show_json  # noqa: PLC0415

    options = make_options(**given)
    configure_logs("console", "error")

    def say(line: str) -> None:
        click.echo(line, err=True)

    watch = Watcher(options, click.get_text_stream("stdout").isatty())
    with ImportBar() as bar, watch:
        session = Session(options, say, bar.advance)
        try:
            report = asyncio.run(session.run(watch))
        except StoreMismatch as mismatch:
            if options.partitions is None:
                raise
            raise UserError(
                f"--partitions {options.partitions} goes before FRESHET_PARTITIONS: leave it out, "
                f"or give another number: {mismatch}"
            ) from mismatch
    if report is not None:
        for line in summary(report):
            say(line)
        if options.as_json:
            show_json(report)
    say(f"stopped; logs are in {session.stack.logs}")


def make_options(**given: Any) -> "RunOptions":
    """The run that the options ask for.

    Raises:
        UserError: options that contradict each other.
    """
    from services.run import options as run  # noqa: PLC0415

    traced = bool(given["pages_file"] or given["events_file"])
    if traced and not (given["pages_file"] and given["events_file"]):
        raise UserError("a trace needs both --pages and --events")
    if traced and given["world"] == "none":
        raise UserError("--world none runs without a trace: leave out --pages and --events")
    if traced and given["page_count"]:
        raise UserError("--page-count is for a generated world: leave it out with a trace")
    if given["days"] and given["seconds"]:
        raise UserError("give --days or --seconds, not both")
    if given["crawls_per_day"] is not None and given["crawls_per_second"] is not None:
        raise UserError("give --crawls-per-day or --crawls-per-second, not both")
    world: WorldKind = "trace" if traced else given["world"]
    default_speed = run.DEFAULT_TRACE_SPEED if traced else run.DEFAULT_GENERATED_SPEED
    speed = given["speed"] or default_speed
    pages = given["page_count"] or run.DEFAULT_PAGES
    days = given["days"] or (given["seconds"] * speed if given["seconds"] else None)
    steps = [(0.0, _first_rate(given, world, pages)), *sorted(given["steps"])]
    unit = 1.0 if given["crawls_per_second"] is not None else SECONDS_PER_DAY
    return run.RunOptions(
        world=world,
        data_dir=given["data_dir"],
        broker=given["broker"],
        policy=given["policy"],
        partitions=given["partitions"],
        schedulers=given["schedulers"],
        pages=pages,
        pages_file=given["pages_file"],
        events_file=given["events_file"],
        speed=speed,
        days=days,
        budget=run.budget_of((day, rate / unit) for day, rate in steps if rate is not None),
        fleet=fleet_plan(given),
        seed=given["seed"],
        report=given["report"],
        view=not given["no_view"],
        as_json=given["as_json"],
    )


def _first_rate(given: dict[str, Any], world: str, pages: int) -> float | None:
    """The budget from the start, in the unit that was given; None: what stands on the broker."""
    from services.run.options import DEFAULT_CRAWLS_PER_PAGE_AND_DAY  # noqa: PLC0415

    rate: float | None = given["crawls_per_second"]
    if rate is None:
        rate = given["crawls_per_day"]
    if rate is None and world == "trace":
        raise UserError("a trace needs a budget: give --crawls-per-day or --crawls-per-second")
    if rate is None and world == "generated":
        rate = pages * DEFAULT_CRAWLS_PER_PAGE_AND_DAY
    if rate is None and given["steps"]:
        raise UserError("--bandwidth-at changes a budget: give --crawls-per-day too")
    return rate
