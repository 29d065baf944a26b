"""Answers of commands: a table for people, JSON for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import click

from shared.terminal.visible import visible


def show(answer: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing, a line a value."""
    if as_json:
        show_json(answer)
        return
    width = max((len(name) for name in answer), default=0)
    for name, value in answer.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {text(value)}")


def show_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str) -> None:
    """Several things of one kind, a line each."""
    if as_json:
        show_json(rows)
        return
    for line in table(rows, empty=empty):
        click.echo(line)


def table(rows: Sequence[Mapping[str, Any]], *, empty: str) -> list[str]:
    """Several things of one kind as lines: their names, and one for each; or `empty`."""
    if not rows:
        return [empty]
    names = list(rows[0])
    cells = [[name.replace("_", " ") for name in names]]
    cells += [[text(row[name]) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def show_json(answer: Any) -> None:
    """JSON on standard output; infinite numbers, which JSON lacks, as null."""
    click.echo(json.dumps(_plain(answer), indent=2, allow_nan=False))


def text(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{visible(str(name))} {text(item)}" for name, item in value.items()) or "-"
        )
    if isinstance(value, list | tuple):
        return ", ".join(text(item) for item in value) or "-"
    return visible(str(value))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
