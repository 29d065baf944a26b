"""`freshet dead-letters list`."""

import asyncio
from typing import Any

import click

from services.cli.output import show_rows

SHOWN_BYTES = 120


@click.group()
def command() -> None:
    """Messages that could not be taken, with why.

    \b
    Examples:
      freshet dead-letters list
      freshet dead-letters list --last 100 --json
    """


@command.command("list")
@click.option("--last", type=click.IntRange(1, 100_000), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(last: int, as_json: bool) -> None:
    """List the newest ones, oldest first."""
    from services.cli.kafka import last_records  # noqa: PLC0415 - commands load what they need
    from shared.contracts.topics import DEAD_LETTERS  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    records = asyncio.run(last_records(load_settings(), DEAD_LETTERS, last))
    show_rows([_row(record) for record in records], as_json=as_json, empty="no dead letters")


def _row(record: Any) -> dict[str, Any]:
    headers = {name: value.decode(errors="replace") for name, value in record.headers}
    value = record.value or b""
    shown = value[:SHOWN_BYTES].decode(errors="backslashreplace")
    return {
        "topic": headers.get("topic"),
        "partition": headers.get("partition"),
        "offset": headers.get("offset"),
        "stage": headers.get("stage"),
        "error": headers.get("error"),
        "message": shown + ("…" if len(value) > SHOWN_BYTES else ""),
    }
