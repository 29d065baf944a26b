"""`freshet status`."""

from collections.abc import Callable
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
    the coordinator, if that answers. Of several databases one that is away is left out, and named;
    then it exits 1.

    \b
    Examples:
      freshet status
      freshet status --coordinator http://coordinator:6069 --json
    """
    from services.cli.left_out import require_all  # noqa: PLC0415
    from services.cli.max_ages import judged_by, max_age_lines  # noqa: PLC0415
    from shared.runtime.asking import ask  # noqa: PLC0415 - commands load what they need
    from shared.runtime.databases import databases_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.status import stores_status  # noqa: PLC0415

    settings = load_settings()
    store, away = stores_status(databases_of(settings), settings.clock().now())
    if store["shards"] is None:
        raise UserError("the database has no Freshet tables yet: run `freshet migrate`")
    picture = ask(coordinator, "/state.json")
    ages = judged_by(settings, store.pop("max_ages"), _bandwidth(picture))
    if as_json:
        show_json({"store": store, "coordinator": picture, "max_ages": ages})
    else:
        for line in (*_lines(store, picture, coordinator), *max_age_lines(ages)):
            click.echo(line)
    require_all(away)


def _bandwidth(picture: dict[str, Any] | None) -> float | None:
    """The budget, crawls per second; None: nobody tells."""
    now = picture.get("now") if picture is not None else None
    told = now.get("bandwidth") if isinstance(now, dict) else None
    return float(told) if isinstance(told, int | float) else None


_NOT_KNOWN = "not known: no shard reports"


def _unused(picture: dict[str, Any], now: dict[str, Any]) -> str:
    why = ": no page is to be crawled" if now["unused"] > 0 else ""
    said = f"{now['unused']:.6g} crawls/s of the budget{why}"
    return said if picture["live_shards"] else _NOT_KNOWN


def _fleet(picture: dict[str, Any], now: dict[str, Any]) -> str:
    if now["fleet_capacity"] is None:
        said = "answers all that it is asked"
        return said if picture["live_shards"] else _NOT_KNOWN
    return (
        f"answers {now['fleet_capacity']:.6g} crawls/s: {now['fleet_held']:.1%} of the "
        "slots wait for it"
    )


def _addresses(groups: dict[str, Any] | None) -> str | None:
    """The limit of what hosts share at an address; None: there is none."""
    if groups is None:
        return None
    return (
        f"at most {groups['crawls_per_second']:.6g} crawls/s each, "
        f"{groups['divided']} of them divided by pages"
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
    return [*lines, *_told(picture, address)]


def _told(picture: dict[str, Any], address: str) -> list[str]:
    """What the coordinator tells; of one of another version, what can be read of it."""
    lines, missing = [], []
    for name, say in _SAYINGS.items():
        try:
            said = say(picture, picture["now"])
        except (KeyError, TypeError, ValueError, AttributeError):
            missing.append(name)
        else:
            lines += [f"{name:<10} {said}"] if said else []
    if missing:
        lines.append(
            f"not told   {', '.join(missing)}: the coordinator at {address} is of another version"
        )
    return lines


_Told = dict[str, Any]

_SAYINGS: dict[str, Callable[[_Told, _Told], str | None]] = {
    "bandwidth": lambda _, now: (
        f"{now['bandwidth']:.6g} crawls/s, {now['achieved']:.6g} achieved "
        f"({now['achieved_ratio']:.1%} of the slots)"
    ),
    "λ₀": lambda picture, now: (
        f"{now['multiplier']:.6g} (version {picture['version']}, {picture['cause']})"
    ),
    "limited": lambda _, now: (
        f"{now['host_limited']:.1%} of the demand is held back by host limits"
    ),
    "unused": _unused,
    "fleet": _fleet,
    "shards": lambda picture, _: (
        f"{picture['live_shards']} live, {picture['silent_shards']} silent"
    ),
    "leader": lambda picture, _: f"{picture['leader'] or 'none'} (epoch {picture['epoch']})",
    "addresses": lambda picture, _: _addresses(picture.get("default_groups")),
    "reasons": lambda picture, _: _reasons(picture.get("reasons") or []),
    "classes": lambda picture, _: _classes(picture.get("classes") or []),
    "notice": lambda picture, _: picture["notice"],
}
"""Name of a line → what it says of a coordinator's picture and its sample of now; None or empty:
nothing."""
