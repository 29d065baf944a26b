"""`freshet demo`."""

from importlib.util import find_spec
from pathlib import Path

import click

from services.cli.commands.bandwidth import Rate
from services.cli.errors import UserError
from shared.terminal.numbers import Number

_SITES = 20
_PAGES = 40
_SECONDS = 180.0
_CRAWLS_PER_SECOND = 15.0


@click.command()
@click.option("--seconds", type=Number(min=5), default=_SECONDS, show_default=True)
@click.option("--sites", type=click.IntRange(1, 200), default=_SITES, show_default=True)
@click.option(
    "--pages",
    type=click.IntRange(1, 10_000),
    default=_PAGES,
    show_default=True,
    help="Of each site.",
)
@click.option(
    "--crawls-per-second",
    type=Rate(),
    default=_CRAWLS_PER_SECOND,
    show_default=True,
    help="The budget.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".freshet/demo"),
    show_default=True,
    help="Data, copies and logs; begins empty.",
)
@click.option("--no-view", is_flag=True, help="Status lines instead of the live view.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON at the end.")
def command(
    seconds: float,
    sites: int,
    pages: int,
    crawls_per_second: float,
    seed: int,
    data_dir: Path,
    no_view: bool,
    as_json: bool,
) -> None:
    """Keep copies of real sites on this machine fresh, and measure how fresh they are.

    A small web of HTTP sites on loopback changes on a seeded plan: sitemaps (one of them lies),
    feeds, IndexNow pings (some of pages that have not changed), redirects, robots.txt, and a site
    that turns everybody away now and then. Beside it run PostgreSQL, a broker, the four workers,
    the receiver, the poller, and Scrapy, which keeps the copies as files. At the end stands how
    often a copy on disk was what its site serves, byte by byte, and what the same number of
    requests would have given without Freshet. Nothing is configured, Ctrl-C stops everything, and
    nothing stays behind but the folder.

    \b
    Examples:
      freshet demo
      freshet demo --seconds 60 --crawls-per-second 10/s --json
    """
    import asyncio  # noqa: PLC0415 - commands load what they need

    from services.demo.report import summary  # noqa: PLC0415
    from services.demo.session import Demo  # noqa: PLC0415
    from services.demo.system import DemoOptions  # noqa: PLC0415
    from services.demo.view import Watcher  # noqa: PLC0415
    from shared.runtime.logs import configure_logs  # noqa: PLC0415
    from shared.terminal.output import show_json  # noqa: PLC0415

    if find_spec("scrapy_freshet") is None:
        raise UserError("the crawler is not installed: pip install clients/scrapy-freshet")
    configure_logs("console", "error")

    def say(line: str) -> None:
        click.echo(line, err=True)

    is_terminal = click.get_text_stream("stderr").isatty() and not no_view
    demo = Demo(DemoOptions(data_dir, seconds, sites, pages, crawls_per_second, seed), say)
    with Watcher(is_terminal) as watch:
        report = asyncio.run(demo.run(watch))
    if report is not None:
        for line in summary(report):
            say(line)
        if as_json:
            show_json(report)
    say(f"stopped; copies and logs are in {demo.system.stack.directory}")
