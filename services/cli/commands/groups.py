"""`freshet groups limit|unlimit|list|show`."""

import asyncio
import re

import click

from services.cli.commands.bandwidth import Rate
from services.cli.errors import UserError
from shared.terminal.output import show, show_rows


@click.group()
def command() -> None:
    """Say how often all hosts of a domain, or of an address, may be crawled together.

    GROUP is a domain and all hosts below it, whatever shards they are in: `example.com` for
    `example.com`, `www.example.com` and `shop.example.com:8080`. Where a domain below it has a
    limit too, hosts there go by the nearest one. Or GROUP is an address, of all hosts that
    crawlers say are there; or, with `--named`, another name that crawlers give (the field `group`
    of their outcomes). A host may be of a domain and of an address: both limits hold, and its own
    besides (`freshet hosts`).

    \b
    Examples:
      freshet groups limit example.com 2/s
      freshet groups limit 203.0.113.7 5/s
      freshet groups unlimit example.com
      freshet groups list
      freshet groups show shop.example.com
    """


_NAMED = click.option("--named", is_flag=True, help="GROUP is a name that outcomes give.")


@command.command("limit")
@click.argument("group")
@click.argument("rate", type=Rate())
@_NAMED
@click.option("--anyway", is_flag=True, help="Though the domain is nobody's own: co.uk, github.io.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def limit(group: str, rate: float, named: bool, anyway: bool, as_json: bool) -> None:
    """Crawl all hosts of GROUP together at most at RATE: `0.5/s`, `1000/day`; 0: not at all."""
    from services.cli.group_limits import registered_domain, room_for_limits  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    name = _group_name(group, named)
    if not (named or anyway) and registered_domain(name) is None:
        raise UserError(
            f"{name} is a public suffix, under which anybody has hosts that share no server: name "
            "a domain below it, or say --anyway; --named, if it is a name that crawlers give"
        )
    standing = _standing()
    if name not in standing:
        most = asyncio.run(room_for_limits(load_settings()))
        if len(standing) >= most:
            raise UserError(f"{most} groups have limits: take one back with `groups unlimit`")
    _publish(name, rate)
    show({"group": name, "max_crawls_per_second": rate}, as_json=as_json)


@command.command("unlimit")
@click.argument("group")
@_NAMED
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def unlimit(group: str, named: bool, as_json: bool) -> None:
    """Take the limit of GROUP back; those of its hosts stay. Where it has none, that is said."""
    name = _group_name(group, named)
    if name in _standing():
        _publish(name, None)
    else:
        click.echo(f"{name} has no limit of its own: `freshet groups list` shows all", err=True)
    show({"group": name, "max_crawls_per_second": None}, as_json=as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(as_json: bool) -> None:
    """All domains and addresses that have limits; where there is a default
    (FRESHET_GROUP_CRAWLS_PER_SECOND), that of all others that crawlers name, as `group` null."""
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    standing = dict[str | None, float](_standing().items())
    if (default := load_settings().group_crawls_per_second) is not None:
        standing[None] = default
    others = None if as_json else "any other that crawlers name"
    rows = [
        {"group": name or others, "max_crawls_per_second": rate} for name, rate in standing.items()
    ]
    show_rows(rows, as_json=as_json, empty="no group has a limit")


@command.command("show")
@click.argument("host")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def show_group(host: str, as_json: bool) -> None:
    """The limits that HOST shares with others, the one that binds first; the domain that it is
    registered under, and the group that crawlers name."""
    from services.cli.group_limits import (  # noqa: PLC0415
        limits_of,
        named_group,
        registered_domain,
    )
    from services.cli.named_hosts import named_host  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    name = named_host(settings, host)
    named = named_group(settings, name)
    limits = limits_of(name, named, _standing(), settings.group_crawls_per_second)
    answer = {
        "host": name,
        "group": limits[0].group if limits else None,
        "max_crawls_per_second": limits[0].max_crawls_per_second if limits else None,
        "by": limits[0].by if limits else None,
        "also": {limit.group: limit.max_crawls_per_second for limit in limits[1:]} or None,
        "registered_domain": registered_domain(name),
        "named_group": named,
    }
    show(answer, as_json=as_json)


def _group_name(written: str, is_named: bool) -> str:
    from shared.contracts.addresses import usual_address  # noqa: PLC0415
    from shared.contracts.fields import MAX_NAMED_GROUP_LENGTH  # noqa: PLC0415
    from shared.contracts.identity import host_name  # noqa: PLC0415
    from shared.rules.host_rules import usual_name  # noqa: PLC0415

    if (address := usual_address(written)) is not None:
        return address
    if not is_named:
        name = usual_name(host_name(written))
        if not name.endswith("]") and ":" in name:
            raise UserError(f"{name}: a domain has no port, its hosts are of it whatever theirs is")
        return name
    if not re.fullmatch(rf"[!-~]{{1,{MAX_NAMED_GROUP_LENGTH}}}", written):
        raise UserError(
            f"{written!r} is no name that outcomes give: up to {MAX_NAMED_GROUP_LENGTH} visible "
            "ASCII characters"
        )
    return written


def _standing() -> dict[str, float]:
    from services.cli.group_limits import standing_limits  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    return asyncio.run(standing_limits(load_settings()))


def _publish(group: str, rate: float | None) -> None:
    from services.cli.audit import note  # noqa: PLC0415
    from services.cli.broker_time import go_by_broker_if_told  # noqa: PLC0415
    from services.cli.group_limits import publish_limit  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    asyncio.run(go_by_broker_if_told(settings))
    asyncio.run(publish_limit(settings, group, rate))
    note(settings, "host", group, {"group_max_crawls_per_second": rate})
