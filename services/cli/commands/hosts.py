"""`freshet hosts show|list|limit|block|unblock|erase`."""

import asyncio
import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import click

from services.cli.commands.bandwidth import Rate
from shared.terminal.numbers import Number
from shared.terminal.output import show, show_json
from shared.terminal.visible import visible

if TYPE_CHECKING:
    from shared.runtime.settings import Settings

_LONGEST_HOURS = 1e6
"""A century: later times are none that can be shown."""


@click.group()
def command() -> None:
    """Say how often hosts may be crawled, and how many requests of them may be open; see which
    rule binds.

    HOST is a URL's authority: `example.com`, or `example.com:8080` on a port that is not the
    scheme's own. Of https:// on port 80, or http:// on port 443, write the scheme as well:
    `https://example.com:80`. Without it, it is meant where such a host is known, and else
    `example.com`, which is never erased in its place.

    Where a rule is set and no page of HOST is known, it holds all the same, and that is said. The
    strictest rule holds: the operators' limit and block, the crawl delay of robots.txt, a pause
    that the host asked for, and what was learned of a host that fails. None of them changes
    another, and all survive restarts.

    \b
    Examples:
      freshet hosts limit example.com 0.5/s
      freshet hosts limit example.com default
      freshet hosts limit example.com --open 2
      freshet hosts block example.com --hours 12
      freshet hosts unblock example.com
      freshet hosts show example.com
      freshet hosts list
      freshet hosts erase example.com --dry-run
    """


class RateOrDefault(click.ParamType):
    """As `Rate`, or `default`."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Crawls per second; NaN: the default."""
        return math.nan if value == "default" else Rate().convert(value, param, ctx)


class NumberOrNone(click.ParamType):
    """A number of requests, or `none`."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """How many; 0: there is no bound."""
        from shared.contracts.fields import MOST_OPEN_REQUESTS  # noqa: PLC0415

        if value == "none":
            return 0
        return int(click.IntRange(1, MOST_OPEN_REQUESTS).convert(value, param, ctx))


@command.command("limit")
@click.argument("host")
@click.argument("rate", type=RateOrDefault(), required=False)
@click.option(
    "--open",
    "most_open",
    type=NumberOrNone(),
    help="Let so many of its requests be on their way at once, or `none`: any number.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def limit(host: str, rate: float | None, most_open: int | None, as_json: bool) -> None:
    """Crawl HOST at most at RATE (`0.5/s`, `1000/day`, or `default`), with at most so many requests
    open: asked for, and not answered yet. What is not given stays, and so does a block."""
    if rate is None and most_open is None:
        raise click.UsageError("say how often, or how many at once: give RATE, --open, or both")
    said: dict[str, Any] = {}
    settings, name = _named(host)
    with _noted_if_unknown(settings, name):
        if rate is not None:
            said["max_crawls_per_second"] = None if math.isnan(rate) else rate
            _publish(settings, name, "limit", rate=said["max_crawls_per_second"])
        if most_open is not None:
            said["max_open_requests"] = most_open or None
            _publish(settings, name, "open", most_open=said["max_open_requests"])
    show({"host": name} | said, as_json=as_json)


@command.command("block")
@click.argument("host")
@click.option("--hours", type=Number(0, _LONGEST_HOURS), default=24.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def block(host: str, hours: float, as_json: bool) -> None:
    """Do not crawl HOST for a time. Its limit stays."""
    from services.cli.bandwidths import timed  # noqa: PLC0415 - commands load what they need

    settings, name = _named(host)
    until = settings.clock().now() + hours * 3600
    with _noted_if_unknown(settings, name):
        _publish(settings, name, "block", until=until)
    answer = {"host": name, "blocked_until": until}
    show(answer if as_json else timed(answer), as_json=as_json)


@command.command("unblock")
@click.argument("host")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def unblock(host: str, as_json: bool) -> None:
    """End the operators' block of HOST; a pause that it asked for, or a back-off, goes on."""
    settings, name = _named(host)
    with _noted_if_unknown(settings, name):
        _publish(settings, name, "block")
    show({"host": name, "blocked_until": None}, as_json=as_json)


@command.command("show")
@click.argument("host")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def show_host(host: str, as_json: bool) -> None:
    """All rules of HOST, which of them binds, and the limit that it shares with other hosts.

    Limits of groups are on the broker: where it is away they are left out; then it exits 1.
    """
    from services.cli.bandwidths import timed  # noqa: PLC0415
    from services.cli.errors import SystemFailed  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.views.answers import host_answer  # noqa: PLC0415

    settings = load_settings()
    answer = host_answer(settings, host)
    groups, trouble = _groups_of(settings, answer["host"], answer["named_group"])
    answer |= groups
    show(answer if as_json else timed(answer), as_json=as_json)
    if trouble is not None:
        raise SystemFailed(f"limits of groups are left out: the broker is away: {trouble}")


@command.command("list")
@click.option("--most", type=click.IntRange(1, 100_000), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(most: int, as_json: bool) -> None:
    """The hosts that a rule binds now, but the default: at most so many, by name.

    Of several databases one that is away is left out, and named; then it exits 1.
    """
    from services.cli.left_out import require_all  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.views.answers import hosts_answer  # noqa: PLC0415
    from shared.views.hosts import line_of  # noqa: PLC0415

    settings = load_settings()
    (hosts, away), now = hosts_answer(settings, most), settings.clock().now()
    if as_json:
        show_json(hosts)
    else:
        if not hosts:
            click.echo("no host has a rule but the default")
        for host in hosts:
            click.echo(visible(line_of(host, now)))
    require_all(away)


@command.command("erase")
@click.argument("host")
@click.option("--dry-run", is_flag=True, help="Only say what it would be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def erase(host: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Erase HOST: all its pages, what was learned and predicted of them, its rules, and what is
    watched of it.

    All workers run on; the estimators erase a part of the pages at a time, and load the host's
    shard anew at the end. Whoever names a page of the host later makes it a new one. What is
    stopped half-way is done by the same command. Of a host of which nothing is known, as it was
    erased before or its name is misspelt, that is said.
    """
    from services.cli.audit import note  # noqa: PLC0415
    from services.cli.broker_time import go_by_broker  # noqa: PLC0415
    from services.cli.confirming import confirm  # noqa: PLC0415
    from services.cli.databases import home_url  # noqa: PLC0415
    from services.cli.erasing import count, erase_host, show_erased  # noqa: PLC0415
    from services.cli.erasing_bar import erasing_with_a_bar  # noqa: PLC0415
    from services.cli.named_hosts import exactly_named_host  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.erased_traces import watched_of_host  # noqa: PLC0415
    from shared.store.purging import Purgeable  # noqa: PLC0415

    settings = load_settings()
    name = exactly_named_host(settings, host)
    # Before anybody is asked: the name may be misspelt. One that was erased before is no error.
    with _noted_if_unknown(settings, name):
        pages = count(settings, Purgeable(host=name, any_status=True))
        watched = watched_of_host(home_url(settings), name)
    if dry_run:
        show({"would_erase": {"pages": pages} | watched}, as_json=as_json)
        return
    if not yes:
        others = ", ".join(f"{len(urls)} watched {what}" for what, urls in watched.items() if urls)
        also = f" and {others}" if others else ""
        confirm(f"Erase {name} with {pages:,} pages{also} for good?")
    asyncio.run(go_by_broker(settings))
    note(settings, "host", name, {"erases": pages} | watched)
    with erasing_with_a_bar() as progress:
        erased = erase_host(settings, name, progress)
    note(settings, "host", name, {"erased": erased.pages})
    show_erased(erased, of_host=True, as_json=as_json)


def _groups_of(
    settings: "Settings", name: str, named: str | None
) -> tuple[dict[str, Any], Exception | None]:
    """What is said of limits that a host shares, or why that is not known."""
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    from services.cli.group_limits import limits_of, standing_limits  # noqa: PLC0415
    from shared.runtime.access import AccessRefused  # noqa: PLC0415

    try:
        limits = asyncio.run(standing_limits(settings))
    except (KafkaError, TimeoutError, AccessRefused) as error:
        return {}, error
    shared = limits_of(name, named, limits, settings.group_crawls_per_second)
    return {
        "group": shared[0].group if shared else None,
        "group_crawls_per_second": shared[0].max_crawls_per_second if shared else None,
        "group_by": shared[0].by if shared else None,
        "also_of": {limit.group: limit.max_crawls_per_second for limit in shared[1:]} or None,
    }, None


def _noted_if_unknown(settings: "Settings", name: str) -> AbstractContextManager[None]:
    from services.cli.unknown_hosts import noted_if_unknown  # noqa: PLC0415

    return noted_if_unknown(settings, name)


def _named(host: str) -> "tuple[Settings, str]":
    """The settings, by the broker's time, and the host that is named."""
    from services.cli.broker_time import go_by_broker_if_told  # noqa: PLC0415
    from services.cli.named_hosts import named_host  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - commands load what they need

    settings = load_settings()
    name = named_host(settings, host)
    asyncio.run(go_by_broker_if_told(settings))
    return settings, name


def _publish(
    settings: "Settings",
    host: str,
    only: Literal["limit", "block", "open"],
    *,
    rate: float | None = None,
    until: float | None = None,
    most_open: int | None = None,
) -> None:
    from services.cli.audit import note  # noqa: PLC0415
    from services.cli.kafka import publish_for_host  # noqa: PLC0415
    from shared.contracts.messages import HostLimit  # noqa: PLC0415
    from shared.contracts.topics import HOST_LIMITS  # noqa: PLC0415
    from shared.rules.host_rules import as_said  # noqa: PLC0415

    changes: dict[str, dict[str, Any]] = {
        "limit": {"max_crawls_per_second": rate},
        "block": {"blocked_until": until},
        "open": {"max_open_requests": most_open},
    }
    message: HostLimit = HostLimit(as_said(host), only=only, **changes[only])
    asyncio.run(publish_for_host(settings, HOST_LIMITS, host, message))
    note(settings, "host", host, changes[only])
