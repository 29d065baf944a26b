"""`freshet groups limit|unlimit|list|show`."""

import asyncio

import click

from services.cli.commands.bandwidth import Rate
from services.cli.errors import UserError
from shared.terminal.output import show, show_rows


@click.group()
def command() -> None:
    """Say how often all hosts of a domain may be crawled together.

    DOMAIN is a domain and all hosts below it, whatever shards they are in: `example.com` for
    `example.com`, `www.example.com` and `shop.example.com:8080`. Where a domain below it has a
    limit too, hosts there go by the nearest one. The hosts' own limits hold besides
    (`freshet hosts`).

    \b
    Examples:
      freshet groups limit example.com 2/s
      freshet groups unlimit example.com
      freshet groups list
      freshet groups show shop.example.com
    """


@command.command("limit")
@click.argument("domain")
@click.argument("rate", type=Rate())
@click.option("--anyway", is_flag=True, help="Though the domain is nobody's own: co.uk, github.io.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def limit(domain: str, rate: float, anyway: bool, as_json: bool) -> None:
    """Crawl all hosts of DOMAIN together at most at RATE: `0.5/s`, `1000/day`; 0: not at all."""
    from services.cli.group_limits import registered_domain  # noqa: PLC0415
    from shared.contracts.fields import MOST_GROUPS  # noqa: PLC0415

    name = _name_of(domain)
    if registered_domain(name) is None and not anyway:
        raise UserError(
            f"{name} is a public suffix, under which anybody has hosts that share no server: name "
            "a domain below it, or say --anyway"
        )
    standing = _standing()
    if name not in standing and len(standing) >= MOST_GROUPS:
        raise UserError(f"{MOST_GROUPS} domains have limits: take one back with `groups unlimit`")
    _publish(name, rate)
    show({"group": name, "max_crawls_per_second": rate}, as_json=as_json)


@command.command("unlimit")
@click.argument("domain")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def unlimit(domain: str, as_json: bool) -> None:
    """Take the limit of DOMAIN back; those of its hosts stay."""
    name = _name_of(domain)
    _publish(name, None)
    show({"group": name, "max_crawls_per_second": None}, as_json=as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(as_json: bool) -> None:
    """All domains that have limits."""
    rows = [{"group": name, "max_crawls_per_second": rate} for name, rate in _standing().items()]
    show_rows(rows, as_json=as_json, empty="no domain has a limit")


@command.command("show")
@click.argument("host")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def show_group(host: str, as_json: bool) -> None:
    """The limit that HOST shares with others, and the domain that it is registered under."""
    from services.cli.group_limits import registered_domain  # noqa: PLC0415
    from shared.rules.host_groups import group_of  # noqa: PLC0415

    name, limits = _name_of(host), _standing()
    group = group_of(name, limits)
    answer = {
        "host": name,
        "group": group,
        "max_crawls_per_second": limits[group] if group is not None else None,
        "registered_domain": registered_domain(name),
    }
    show(answer, as_json=as_json)


def _name_of(host: str) -> str:
    from shared.views.hosts import host_name  # noqa: PLC0415

    return host_name(host)


def _standing() -> dict[str, float]:
    from services.cli.group_limits import standing_limits  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    return asyncio.run(standing_limits(load_settings()))


def _publish(group: str, rate: float | None) -> None:
    from services.cli.audit import note  # noqa: PLC0415
    from services.cli.group_limits import publish_limit  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    asyncio.run(publish_limit(settings, group, rate))
    note(settings, "host", group, {"group_max_crawls_per_second": rate})
