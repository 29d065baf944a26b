"""How `freshet plan` answers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
import yaml

from services.plan.servers import TopicSize
from services.plan.sizing import GI, Plan, Wanted
from shared.terminal.output import show_rows

_MB: Final = 1e6


def as_json(wanted: Wanted, sizes: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    """All of it, in bytes, seconds and cores."""
    load, postgres, kafka = wanted.load, sizes.postgres, sizes.kafka
    return {
        "pages": load.pages,
        "hosts": load.hosts,
        "crawls_per_second": load.crawls,
        "signals_per_second": load.signals,
        "shards": sizes.shards,
        "workers": {
            name: {
                "replicas": worker.replicas,
                "cores": worker.cores,
                "memory_bytes": worker.memory_bytes,
                "used_cores": worker.used_cores,
                "used_memory_bytes": worker.used_memory_bytes,
            }
            for name, worker in sizes.workers.items()
        },
        "postgres": {
            "cores": postgres.cores,
            "memory_bytes": postgres.memory_bytes,
            "connections": postgres.connections,
            "disk_bytes": dict(postgres.disk_bytes),
            "log_bytes_per_second": postgres.log_bytes_per_second,
            "reads_per_second": postgres.reads_per_second,
        },
        "kafka": {
            "copies": kafka.copies,
            "disk_bytes": kafka.disk_bytes,
            "received_bytes_per_second": kafka.received_bytes_per_second,
            "sent_bytes_per_second": kafka.sent_bytes_per_second,
            "topics": {
                name: {field: getattr(topic, field) for field in TopicSize.__slots__}
                for name, topic in kafka.topics.items()
            },
        },
        "start_seconds": sizes.start_seconds,
        "failover_seconds": sizes.failover_seconds,
        "values": values,
    }


def as_yaml(values: Mapping[str, Any]) -> str:
    """As it stands in `values.yaml`."""
    return yaml.safe_dump(dict(values), sort_keys=False)


def show_plan(sizes: Plan, values: Mapping[str, Any]) -> None:
    """For people: the workers, the servers, and the lines for `values.yaml`."""
    postgres, kafka = sizes.postgres, sizes.kafka
    click.echo(
        f"{sizes.shards} shards; everything is served {_seconds(sizes.start_seconds)} after a "
        f"start,\nthe shards of a scheduler that dies again after "
        f"{_seconds(sizes.failover_seconds)}\n"
    )
    rows = [
        {
            "worker": name,
            "replicas": worker.replicas,
            "cores each": worker.cores,
            "GiB each": worker.memory_bytes / GI,
            "cores used by all": worker.used_cores,
            "GiB used by all": worker.used_memory_bytes / GI,
        }
        for name, worker in sizes.workers.items()
    ]
    show_rows(_short(rows), as_json=False, empty="")
    click.echo(
        f"\nPostgreSQL: {math.ceil(postgres.cores)} cores, {postgres.memory_bytes / GI:.4g} GiB of "
        f"memory with the keys of all pages, {postgres.connections} connections,\n"
        f"{sum(postgres.disk_bytes.values()) / GI:.4g} GiB of disk, "
        f"{postgres.log_bytes_per_second / _MB:.4g} MB/s of log (to each standby, too), "
        f"{postgres.reads_per_second:.6g} reads/s where rows are not cached"
    )
    for part, size in postgres.disk_bytes.items():
        click.echo(f"  {part:<13} {size / GI:.4g} GiB")
    click.echo(
        f"\nKafka, all brokers together: {kafka.disk_bytes / GI:.4g} GiB of disk with "
        f"{kafka.copies} copies,\n{kafka.received_bytes_per_second / _MB:.4g} MB/s received, "
        f"{kafka.sent_bytes_per_second / _MB:.4g} MB/s sent"
    )
    rows = [
        {
            "topic": name,
            "partitions": topic.partitions,
            "records/s": topic.records_per_second,
            "MB/s": topic.bytes_per_second / _MB,
            "disk GiB": topic.disk_bytes / GI,
        }
        for name, topic in kafka.topics.items()
    ]
    show_rows(_short(rows), as_json=False, empty="")
    click.echo("\n# values.yaml")
    click.echo(as_yaml(values))


def show_coefficients(described: Sequence[Mapping[str, Any]], *, in_full: bool) -> None:
    """What the plan was added up from: each coefficient, or only who measured them."""
    if in_full:
        shown = ("name", "value", "what", "command", "date", "commit")
        rows = [{name: item[name] for name in shown} for item in described]
        show_rows(rows, as_json=False, empty="")
        return
    click.echo(f"Added up from {len(described)} coefficients (--coefficients), measured by:")
    for run in dict.fromkeys(
        (d["command"], d["date"], d["machine"], d["commit"]) for d in described
    ):
        command, date, machine, commit = run
        click.echo(
            f"  {command}" if date is None else f"  {command}\n    {date}, {commit}: {machine}"
        )


def _short(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As many digits as a plan has."""
    return [
        {n: float(f"{v:.3g}") if isinstance(v, float) else v for n, v in row.items()}
        for row in rows
    ]


def _seconds(value: float) -> str:
    return f"{value:.0f} s"
