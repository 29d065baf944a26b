"""`freshet topics ensure|list`."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from shared.terminal.output import show_rows

if TYPE_CHECKING:
    from shared.runtime.findings import Finding
    from shared.runtime.settings import Settings


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
    from shared.runtime.access import check_access  # noqa: PLC0415
    from shared.runtime.findings import gathered  # noqa: PLC0415
    from shared.runtime.kafka import client_options, ensure_topics  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    require_broker(settings)

    async def ensured() -> "list[Finding]":
        # A worker waits for a broker that hangs up, as it may be starting; nobody waits here.
        await check_access(settings, client_options(settings))
        return await ensure_topics(settings, fix=fix)

    findings = asyncio.run(ensured())
    rows = asyncio.run(_topics_of(settings))
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
    """List the topics of the contract, with the partitions that they have on the broker.

    A topic that is not there has 0. Where no broker can be reached, the partitions are those that
    the settings say; then it exits 1.
    """
    from aiokafka.errors import KafkaConnectionError  # noqa: PLC0415

    from services.cli.errors import SystemFailed  # noqa: PLC0415
    from services.cli.kafka import require_broker  # noqa: PLC0415
    from shared.contracts.topics import TOPICS  # noqa: PLC0415
    from shared.runtime.kafka import partitions_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    try:
        require_broker(settings)
    except KafkaConnectionError:
        rows = _rows(settings, {topic.name: partitions_of(topic, settings) for topic in TOPICS})
        show_rows(rows, as_json=as_json, empty="")
        raise SystemFailed(
            "no broker can be reached: partitions are those of the settings"
        ) from None
    show_rows(asyncio.run(_topics_of(settings)), as_json=as_json, empty="")


async def _topics_of(settings: "Settings") -> list[dict[str, Any]]:
    """A row a topic, with the partitions that are on the broker."""
    from shared.contracts.topics import TOPICS  # noqa: PLC0415
    from shared.runtime.kafka import topic_partitions  # noqa: PLC0415

    found = await topic_partitions(settings, TOPICS)
    return _rows(settings, {name: len(partitions) for name, partitions in found.items()})


def _rows(settings: "Settings", partitions: Mapping[str, int]) -> list[dict[str, Any]]:
    from shared.contracts.topics import TOPICS  # noqa: PLC0415

    return [
        {
            "topic": settings.topic(topic.name),
            "partitions": partitions[topic.name],
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
