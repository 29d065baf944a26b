"""`freshet positions list|settle`."""

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import click

from shared.terminal.output import show_rows

if TYPE_CHECKING:
    from services.cli.positions import Place
    from shared.contracts.databases import Database


@click.group()
def command() -> None:
    """Where the workers stand in what they read.

    A worker stops before a partition that does not continue what it has read: where the log ends
    before its position (brokers have lost records), or the topic was removed and made anew. Look
    at it here, and say how to go on.

    \b
    States:
      ok           it can be read on
      gap          records were gone before they were read: the worker goes on behind them
      beyond end   the log ends before the position
      other topic  the topic is not the one that was read
    \b
    Examples:
      freshet positions list --broken
      freshet positions settle --topic page-updates
      freshet positions settle --topic page-signals --partition 3 --at end --yes
    """


@command.command("list")
@click.option("--topic", help="Only this topic (without the prefix).")
@click.option("--broken", is_flag=True, help="Only what cannot be read on.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(topic: str | None, broken: bool, as_json: bool) -> None:
    """Position, log and lag of every partition.

    Schedulers begin where the estimator's positions are. Ends are those of committed transactions.
    Of several databases one that is away is left out, and named; then it exits 1.
    """
    from services.cli.left_out import require_all  # noqa: PLC0415 - commands load what they need

    found, away = _places(topic)
    rows = [_row(place) for place in found if not broken or place.state != "ok"]
    show_rows(rows, as_json=as_json, empty="everything can be read on")
    require_all(away)


@command.command("settle")
@click.option("--topic", required=True, help="Which topic (without the prefix).")
@click.option("--partition", "partitions", type=int, multiple=True, help="Only these partitions.")
@click.option(
    "--at",
    type=click.Choice(["start", "end"]),
    default="start",
    show_default=True,
    help="Where to go on: read all that is there, or only what comes from now on.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def settle(topic: str, partitions: tuple[int, ...], at: Literal["start", "end"], yes: bool) -> None:
    """Go on in partitions that do not continue what was read.

    Stop the workers first that keep the positions: the ingesters for `signals`, the discoverers for
    `discoveries` and theirs of `crawl-outcomes`, the estimators for all others; the command refuses
    while one runs. Then start them again, and all schedulers anew: one that had not noticed yet
    might go on behind what it has not read.

    At the start, all that is in the log is read, some of it perhaps again: outcomes, updates and
    signals that were applied are known by their times. At the end, what was written since the
    break is given up. Either way the topic that is there now is taken for the right one.

    Of several databases one that is away is left out, and named; then it exits 1. Settle what it
    has when it is back.
    """
    from services.cli.confirming import confirm  # noqa: PLC0415
    from services.cli.left_out import require_all  # noqa: PLC0415
    from services.cli.positions import StillRunning  # noqa: PLC0415 - commands load what they need
    from services.cli.positions import settle as go_on  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    found, away = _places(topic)
    if unknown := set(partitions) - {place.partition for place in found}:
        require_all(away)
        raise click.BadParameter(
            f"{topic} has no partition {min(unknown)}", param_hint="--partition"
        )
    chosen = [
        place
        for place in found
        if place.state != "ok" and (not partitions or place.partition in partitions)
    ]
    if partitions and any(place.state == "other topic" for place in chosen):
        raise click.UsageError("a topic that was made anew is settled as a whole: no --partition")
    if not chosen:
        click.echo("nothing to settle: all of it can be read on")
        require_all(away)
        return
    rows = [
        _row(place) | {"new_position": place.settled_at(at), "given_up": place.given_up(at)}
        for place in chosen
    ]
    show_rows(rows, as_json=False, empty="")
    if not yes:
        confirm("Go on so?")
    try:
        asyncio.run(go_on(load_settings(), chosen, at))
    except StillRunning as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{len(chosen)} partitions settled: start the workers again")
    require_all(away)


def _places(topic: str | None) -> "tuple[list[Place], dict[Database, str]]":
    from services.cli.positions import places  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    found, away = asyncio.run(places(load_settings()))
    names = {place.topic for place in found}
    if topic is not None and topic not in names:
        raise click.BadParameter(f"{topic!r} is none of {', '.join(sorted(names))}")
    return [place for place in found if topic in (None, place.topic)], away


def _row(place: "Place") -> dict[str, Any]:
    return {
        "consumer": place.consumer,
        "topic": place.topic,
        "partition": place.partition,
        "position": place.position,
        "log_start": place.log_start,
        "log_end": place.log_end,
        "lag": place.lag,
        "state": place.state,
    }
