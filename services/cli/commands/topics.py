"""`freshet topics ensure|list`."""

import asyncio
from typing import Any

import click

from shared.terminal.output import show_rows


@click.group()
def command() -> None:
    """Create and list the topics on the broker.

    \b
    Examples:
      freshet topics ensure
      freshet topics list --json
    """


@command.command("ensure")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def ensure(as_json: bool) -> None:
    """Create the topics that the broker lacks, and check the others' partitions."""
    from services.cli.kafka import require_broker  # noqa: PLC0415
    from shared.runtime.kafka import ensure_topics  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    require_broker(settings)
    asyncio.run(ensure_topics(settings))
    show_rows(_topics(), as_json=as_json, empty="")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(as_json: bool) -> None:
    """List the topics of the contract; needs no broker."""
    show_rows(_topics(), as_json=as_json, empty="")


def _topics() -> list[dict[str, Any]]:
    from shared.contracts.topics import TOPICS  # noqa: PLC0415
    from shared.runtime.kafka import partitions_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    return [
        {
            "topic": settings.topic(topic.name),
            "partitions": partitions_of(topic, settings),
            "key": topic.key,
            "kept": "last of each key" if topic.compacted else _retention(topic.config),
            "written_by": topic.written_by,
            "read_by": topic.read_by,
        }
        for topic in TOPICS
    ]


def _retention(config: dict[str, str]) -> str:
    hours = int(config["retention.ms"]) / 3_600_000
    return f"{hours / 24:g} days" if hours >= 24 else f"{hours:.2g} hours"
