"""`freshet hosts limit|block`."""

import asyncio

import click

from services.cli.commands.bandwidth import Rate
from services.cli.errors import UserError
from shared.terminal.output import show


@click.group()
def command() -> None:
    """Limit how often a host is crawled, or block it.

    HOST is a URL's authority: `example.com`, or `example.com:8080` on a port that is not the
    scheme's own. Limits are kept by the system and survive restarts.

    \b
    Examples:
      freshet hosts limit example.com 0.5/s
      freshet hosts block example.com --hours 12
    """


@command.command("limit")
@click.argument("host")
@click.argument("rate", type=Rate())
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def limit(host: str, rate: float, as_json: bool) -> None:
    """Crawl HOST at most at RATE (`0.5/s`, `1000/day`); this also ends a block."""
    _publish(host, rate, None, as_json=as_json)


@command.command("block")
@click.argument("host")
@click.option("--hours", type=click.FloatRange(min=0), default=24.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def block(host: str, hours: float, as_json: bool) -> None:
    """Do not crawl HOST for a time; its limit goes back to the default."""
    _publish(host, None, hours, as_json=as_json)


def _publish(host: str, rate: float | None, blocked_hours: float | None, *, as_json: bool) -> None:
    from services.cli.kafka import publish_for_host  # noqa: PLC0415
    from shared.contracts.identity import BadUrl, identify  # noqa: PLC0415
    from shared.contracts.messages import HostLimit  # noqa: PLC0415
    from shared.contracts.topics import HOST_LIMITS  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    if "/" in host or "@" in host:
        raise UserError(f"{host!r} is not a host: give the authority only, like example.com:8080")
    try:
        name = identify(f"http://{host}/").host
    except BadUrl as error:
        raise UserError(f"{host!r} is not a host: {error}") from error
    settings = load_settings()
    until = None if blocked_hours is None else settings.clock().now() + blocked_hours * 3600
    message = HostLimit(name, max_crawls_per_second=rate, blocked_until=until)
    asyncio.run(publish_for_host(settings, HOST_LIMITS, name, message))
    show({"host": name, "max_crawls_per_second": rate, "blocked_until": until}, as_json=as_json)
