"""`freshet topics ensure|list`."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from shared.terminal.output import show_rows

if TYPE_CHECKING:
    from shared.runtime.findings import Finding


@click.group()
def command() -> None:
    """Create, mend and list the topics on the broker.

    \b
    Examples:
      freshet topics ensure
      freshet topics ensure --fix
      freshet topics list --json
    """


@command.command("ensure")
@click.option("--fix", is_flag=True, help="Alter settings that a promise rests on.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def ensure(fix: bool, as_json: bool) -> None:
    """Create the topics that the broker lacks, and check the others.

    Compares partitions, replicas, retention, compaction and time stamps with what the promises
    rest on, and says which do not hold. With --fix it alters what can be altered without harm:
    all but replicas, partitions and limits of size.
    """
    from services.cli.kafka import require_broker  # noqa: PLC0415
    from shared.runtime.findings import gathered  # noqa: PLC0415
    from shared.runtime.kafka import ensure_topics  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    require_broker(settings)
    findings = asyncio.run(ensure_topics(settings, fix=fix))
    rows = _topics()
    if as_json:
        for row in rows:
            row["findings"] = [f.as_dict() for f in findings if f.about == row["topic"]]
    show_rows(rows, as_json=as_json, empty="")
    for finding in [] if as_json else gathered(findings):
        click.echo(_lines(finding))


def _lines(finding: "Finding") -> str:
    """What is not as it should be, and what to do."""
    return (
        f"\n{finding.level}: {finding.about}: {finding.found}, should be {finding.wanted}\n"
        f"  endangered: {finding.promise}\n"
        f"  do: {finding.remedy}"
    )


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
