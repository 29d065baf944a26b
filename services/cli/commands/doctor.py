"""`freshet doctor`."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from services.cli.errors import explanation
from shared.terminal.output import show_json
from shared.terminal.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

    from shared.runtime.findings import Finding
    from shared.runtime.settings import Settings

Areas = dict[str, list["Finding"]]

_STYLES = {"risk": "bold red", "note": "yellow", "ok": "green"}
"""The worst first."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(as_json: bool) -> None:
    """Whether everything that the promises rest on is as it should be. Changes nothing.

    Looks at the broker and its topics, at the database, its settings, schema and roles, at this
    machine's clock and at the versions. `risk`: a promise does not hold while it is so; `note`:
    worth knowing. Exits 1 where there is a risk.

    \b
    Examples:
      freshet doctor
      freshet doctor --json
    """
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - commands load what they need

    areas = _look(load_settings())
    risks = sum(finding.level == "risk" for found in areas.values() for finding in found)
    if as_json:
        findings = [
            {"area": area, **finding.as_dict()}
            for area, found in areas.items()
            for finding in found
        ]
        show_json({"risks": risks, "findings": findings})
    else:
        _print(areas, risks)
    sys.exit(1 if risks else 0)


def _look(settings: "Settings") -> Areas:
    from services.cli.doctor.broker import look_at_broker  # noqa: PLC0415
    from services.cli.doctor.clock import (  # noqa: PLC0415
        look_at_broker_clock,
        look_at_database_clock,
    )
    from services.cli.doctor.database import look_at_databases  # noqa: PLC0415
    from services.cli.doctor.shards import look_at_shards  # noqa: PLC0415
    from services.cli.doctor.versions import look_at_versions  # noqa: PLC0415
    from services.cli.kafka import require_broker  # noqa: PLC0415
    from shared.runtime.databases import databases_of  # noqa: PLC0415

    databases = databases_of(settings)

    def broker() -> "list[Finding]":
        require_broker(settings)
        return asyncio.run(look_at_broker(settings))

    def broker_clock() -> "list[Finding]":
        require_broker(settings)
        return [look_at_broker_clock(settings)]

    def shards() -> "list[Finding]":
        require_broker(settings)
        return list(look_at_shards(settings, databases))

    return {
        # Where one of both cannot be asked, that is said elsewhere.
        "broker": [
            *_or_why_not("broker", broker),
            *(finding for finding in _or_why_not("", shards) if finding.about),
        ],
        "database": _or_why_not(
            "database", lambda: look_at_databases(databases, settings.partitions)
        ),
        "clock": [
            *_or_why_not("broker's time", broker_clock),
            # Each by itself: one that is away says nothing of the others.
            *(
                finding
                for one in databases.each
                for finding in _or_why_not(
                    "database's time" if one.held is None else f"database's time ({one.held})",
                    partial(_clock_of, look_at_database_clock, one.url),
                )
            ),
        ],
        "versions": list(look_at_versions()),
    }


def _clock_of(look: "Callable[[str], Finding]", url: str) -> "list[Finding]":
    return [look(url)]


def _or_why_not(about: str, look: "Callable[[], list[Finding]]") -> "list[Finding]":
    """What is found; where a server does not let us look, that."""
    from shared.runtime.findings import Finding  # noqa: PLC0415

    try:
        return look()
    except Exception as error:
        why = explanation(error)
        if why is None:
            raise
        return [
            Finding(
                "risk",
                about,
                why,
                "a server that answers, and lets us look",
                "workers do their work, and wait only for a while",
                "see the settings by `freshet settings`, and the server",
            )
        ]


def _print(areas: Areas, risks: int) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console(highlight=False)
    for area, findings in areas.items():
        console.print(f"[bold]{area}[/bold]")
        if console.is_terminal:
            console.print(_table(findings))
            continue
        # A program reads it, or a person later, elsewhere: a line for each, however long.
        for line in _lines(findings):
            click.echo(line)
    verdict = {0: "no promise is at risk", 1: "1 promise is at risk"}
    console.print(verdict.get(risks, f"{risks} promises are at risk"), style=_verdict_style(risks))


def _verdict_style(risks: int) -> str:
    return _STYLES["risk" if risks else "ok"]


def _table(findings: "list[Finding]") -> "Table":
    """A line for what is well; what is not tells what should be, what for, and what to do."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(max_width=32)
    table.add_column(overflow="fold")
    for level, name, text in _rows(findings):
        mark = Text(level, style=_STYLES.get(level, ""))
        table.add_row(mark, Text(name, style="" if level else "dim"), Text(text))
    return table


def _lines(findings: "list[Finding]") -> "Iterator[str]":
    """The same as plain lines, as those of other commands."""
    rows = [tuple(map(visible, row)) for row in _rows(findings)]
    marks, names = (max((len(row[n]) for row in rows), default=0) for n in (0, 1))
    for mark, name, text in rows:
        yield f"{mark:<{marks}}  {name:<{names}}  {text}".rstrip()


def _rows(findings: "list[Finding]") -> "Iterator[tuple[str, str, str]]":
    """How bad it is, what it is about and what was found, the worst first; below each that is not
    well, without the first, what should be."""
    for finding in sorted(findings, key=lambda finding: list(_STYLES).index(finding.level)):
        yield finding.level, finding.about, finding.found
        if finding.level != "ok":
            yield "", "should be", finding.wanted
            is_risk = finding.level == "risk"
            yield "", "endangered" if is_risk else "not promised", finding.promise
            yield "", "do", finding.remedy
