"""`freshet status`."""

from typing import Any

import click

from services.cli.errors import UserError
from shared.terminal.output import show_json, text

DEFAULT_COORDINATOR = "http://127.0.0.1:6069"


@click.command()
@click.option(
    "--coordinator",
    envvar="COORDINATOR_URL",
    default=DEFAULT_COORDINATOR,
    show_default=True,
    help="Where to ask for rates and shards; or COORDINATOR_URL.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(coordinator: str, as_json: bool) -> None:
    """How the system stands: pages, hosts, bandwidth, λ₀, shards, and how far streams are applied.

    Says whether the maximum ages of pages can be kept at this bandwidth, and which would keep them.
    Takes pages from PostgreSQL (they are counted: some seconds for many millions) and rates from
    the coordinator, if that answers. Of several databases one that is away is left out, and named.

    \b
    Examples:
      freshet status
      freshet status --coordinator http://coordinator:6069 --json
    """
    from services.cli.max_ages import bounds_of, judged, max_age_lines  # noqa: PLC0415
    from shared.runtime.asking import ask  # noqa: PLC0415 - commands load what they need
    from shared.runtime.databases import databases_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.status import stores_status  # noqa: PLC0415

    settings = load_settings()
    store = stores_status(databases_of(settings), settings.clock().now())
    if store["shards"] is None:
        raise UserError("the database has no Freshet tables yet: run `freshet migrate`")
    picture = ask(coordinator, "/state.json")
    bounds = bounds_of(store.pop("max_ages"), settings.default_max_age_days)
    bandwidth = picture["now"]["bandwidth"] if picture is not None else None
    ages = judged(bounds, bandwidth, settings.least_interval_seconds)
    if as_json:
        show_json({"store": store, "coordinator": picture, "max_ages": ages})
        return
    for line in (*_lines(store, picture, coordinator), *max_age_lines(ages)):
        click.echo(line)


def _fleet(now: dict[str, Any]) -> str:
    if now["fleet_capacity"] is None:
        return "fleet      answers all that it is asked"
    return (
        f"fleet      answers {now['fleet_capacity']:.6g} crawls/s: {now['fleet_held']:.1%} of the "
        "slots wait for it"
    )


def _reasons(reasons: list[dict[str, Any]]) -> str:
    """What is asked for of late, by reason, beside what is kept for each."""
    total = sum(of["crawls_per_second"] for of in reasons) or 1.0
    parts = [
        f"{of['reason']} {of['crawls_per_second'] / total:.1%}"
        + (f" (kept {of['kept']:.6g})" if of["kept"] else "")
        for of in reasons
    ]
    return ", ".join(parts)


def _classes(classes: list[dict[str, Any]]) -> str:
    """What is asked for of late, by class of pages, beside what operators say of each."""
    total = sum(of["crawls_per_second"] for of in classes) or 1.0
    parts = []
    for of in classes:
        said = [f"{of['pages']:,} pages"]
        said += [f"weight {of['weight']:.6g}"] if of["weight"] != 1.0 else []
        said += [f"kept {of['kept']:.6g}"] if of["kept"] else []
        part = of["crawls_per_second"] / total
        parts.append(f"{of['page_class'] or 'others'} {part:.1%} ({', '.join(said)})")
    return ", ".join(parts)


def _lines(store: dict[str, Any], picture: dict[str, Any] | None, address: str) -> list[str]:
    lines = [
        f"pages      {text(store['pages'])}",
        f"hosts      {text(store['hosts'])}",
        f"database   {store['bytes'] / 1e6:,.0f} MB, {store['shards']} shards",
    ]
    for one in store.get("databases", ()):
        told = f"{one['active']:,} active pages" if one["away"] is None else f"away: {one['away']}"
        lines.append(f"           shards {one['shards']}: {told}")
    lines += [
        f"applied    {consumer}: {text(topics)}" for consumer, topics in store["positions"].items()
    ]
    if picture is None:
        return [*lines, f"coordinator does not answer at {address}: give --coordinator"]
    now = picture["now"]
    lines += [
        f"bandwidth  {now['bandwidth']:.6g} crawls/s, {now['achieved']:.6g} achieved "
        f"({now['achieved_ratio']:.1%} of the slots)",
        f"λ₀         {now['multiplier']:.6g} (version {picture['version']}, {picture['cause']})",
        f"limited    {now['host_limited']:.1%} of the demand is held back by host limits",
        f"unused     {now['unused']:.6g} crawls/s of the budget: no page is to be crawled",
        _fleet(now),
        f"shards     {picture['live_shards']} live, {picture['silent_shards']} silent",
        f"leader     {picture['leader'] or 'none'} (epoch {picture['epoch']})",
    ]
    if (groups := picture.get("default_groups")) is not None:
        lines.append(
            f"addresses  at most {groups['crawls_per_second']:.6g} crawls/s each, "
            f"{groups['divided']} of them divided by pages"
        )
    if picture.get("reasons"):
        lines.append(f"reasons    {_reasons(picture['reasons'])}")
    if picture.get("classes"):
        lines.append(f"classes    {_classes(picture['classes'])}")
    if picture["notice"]:
        lines.append(f"notice     {picture['notice']}")
    return lines
