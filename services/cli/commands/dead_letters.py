"""`freshet dead-letters list|replay|drop`."""

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from shared.runtime.wall_time import WALL
from shared.terminal.output import show, show_rows
from shared.terminal.visible import visible

if TYPE_CHECKING:
    from services.cli.dead_letters import Choice
    from shared.runtime.dead_letters import Action, Letter

SHOWN_BYTES = 120

_CLOCKS_AGREE_SECONDS = 300.0
"""This machine's clock may be behind by so much."""


class Offsets(click.ParamType):
    """Offsets of letters: `17`, `17-99` or `17-`."""

    name = "offsets"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int | None]:
        """First and last, or click's error."""
        if isinstance(value, tuple):
            return value
        first, dash, last = str(value).partition("-")
        try:
            begin = int(first)
            end = begin if not dash else int(last) if last else None
        except ValueError:
            self.fail(f"{value!r} is not an offset, nor a range like 17-99 or 17-", param, ctx)
        if end is not None and end < begin:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return begin, end


class Since(click.ParamType):
    """A time: `2h`, `30m`, `1d` ago, or Unix seconds."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Unix seconds, or click's error."""
        from services.cli.dead_letters import since_of  # noqa: PLC0415 - commands load what they need

        try:
            found = since_of(str(value))
        except ValueError:
            found = math.nan
        if not 0 <= found < 1e11:
            self.fail(f"{value!r} is not a time like 2h, 30m, 1d or 1700000000", param, ctx)
        if found > WALL.now() + _CLOCKS_AGREE_SECONDS:
            # There would be no letters, and it would look as if all were well.
            self.fail(f"{value!r} is a time that is yet to come", param, ctx)
        return found


_FILTERS = (
    click.option("--topic", help="Only those that came from this topic (without the prefix)."),
    click.option("--stage", help="Only those that this worker refused."),
    click.option("--reason", help="Only those whose error has this text in it."),
    click.option("--offsets", type=Offsets(), help="Only these letters: 17, 17-99 or 17-."),
    click.option("--since", type=Since(), help="Only since then: 2h, 30m, 1d, or Unix seconds."),
)


def filtered(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that choose letters."""
    for option in reversed(_FILTERS):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Messages that could not be taken, with why.

    A letter is dealt with once: replayed to the topic and partition that it came from, as it came,
    or dropped. What was dealt with is marked, and left out by the next command.

    \b
    Examples:
      freshet dead-letters list --topic crawl-outcomes --since 2h
      freshet dead-letters replay --reason "unknown page" --dry-run
      freshet dead-letters replay --reason "unknown page"
      freshet dead-letters drop --offsets 0-999
    """


@command.command("list")
@click.option("--last", type=click.IntRange(1, 100_000), default=20, show_default=True)
@filtered
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(last: int, as_json: bool, **filters: Any) -> None:
    """List the newest ones, oldest first, and what became of them."""
    from services.cli.dead_letters import newest  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    choice = _choice(**filters)
    letters = asyncio.run(newest(load_settings(), choice, last))
    rows = [_row(letter, handled) for letter, handled in letters]
    # A stage or a reason that is misspelt says nothing of how many there are.
    empty = "no dead letters" if choice.is_everything else "no dead letter is one of these"
    show_rows(rows, as_json=as_json, empty=empty)


@command.command("replay")
@filtered
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def replay(dry_run: bool, as_json: bool, **filters: Any) -> None:
    """Send them once more to where they came from, after the fault is mended.

    Each goes to its topic and partition with its own key, headers and time. Those that still cannot
    be taken come back as new dead letters. Repeating the command does nothing more. Exits 1 where
    one could not be sent; it stays, and the others are sent.
    """
    _deal("replayed", filters, dry_run=dry_run, as_json=as_json)


@command.command("drop")
@filtered
@click.option("--all", "everything", is_flag=True, help="All that there are.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def drop(everything: bool, dry_run: bool, as_json: bool, **filters: Any) -> None:
    """Mark them as dealt with: they are not replayed any more. Say which, or --all.

    They stay to be read until the topic's retention deletes them.
    """
    are_named = any(chosen is not None for chosen in filters.values())
    if everything == are_named:
        raise click.UsageError("say which letters to drop, or --all of them, and not both")
    _deal("dropped", filters, dry_run=dry_run, as_json=as_json)


def _choice(
    topic: str | None,
    stage: str | None,
    reason: str | None,
    offsets: tuple[int, int | None] | None,
    since: float | None,
) -> "Choice":
    from services.cli.dead_letters import Choice  # noqa: PLC0415
    from shared.contracts.topics import TOPICS  # noqa: PLC0415

    # One that is misspelt has no letters, and would look as if all were well.
    names = sorted(known.name for known in TOPICS)
    if topic is not None and topic not in names:
        raise click.BadParameter(f"{topic!r} is none of {', '.join(names)}", param_hint="--topic")
    if reason == "":
        raise click.BadParameter("an empty text is in every error", param_hint="--reason")
    first, last = offsets or (0, None)
    return Choice(topic, stage, reason, first, last, since)


def _deal(action: "Action", filters: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from services.cli.dead_letters import deal_with  # noqa: PLC0415
    from services.cli.errors import SystemFailed  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    with click.progressbar(
        length=1, label="dead letters", file=click.get_text_stream("stderr")
    ) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        dealt = asyncio.run(
            deal_with(
                load_settings(), _choice(**filters), action, dry_run=dry_run, progress=progress
            )
        )
    answer = {
        "matched": dealt.matched,
        f"would_be_{action}" if dry_run else action: dealt.done,
        "handled_before": dealt.handled_before,
        "failed": dealt.failed,
    }
    if as_json:
        show(answer | {"failures": dealt.reasons}, as_json=True)
    else:
        show(answer, as_json=False)
        for one in dealt.reasons:
            click.echo(f"letter {one['letter']}: {visible(one['reason'])}", err=True)
    if dealt.failed and not dry_run:
        raise SystemFailed(
            f"{dealt.failed:,} letters could not be replayed, and stay: mend what keeps them and "
            "call this again, or `freshet dead-letters drop --offsets` those that nobody needs"
        )


def _row(letter: "Letter", handled: str | None) -> dict[str, Any]:
    value = letter.value or b""
    shown = value[:SHOWN_BYTES].decode(errors="backslashreplace")
    return {
        "letter": letter.offset,
        "topic": letter.topic or None,
        "partition": letter.partition if letter.partition >= 0 else None,
        "offset": letter.original_offset if letter.original_offset >= 0 else None,
        "stage": letter.stage or None,
        "error": letter.error or None,
        "handled": handled,
        "message": shown + ("…" if len(value) > SHOWN_BYTES else ""),
    }
