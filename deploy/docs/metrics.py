"""The page of the metrics: every one of every worker, with what it means."""

import importlib

import prometheus_client
from prometheus_client import Metric

from deploy.docs.tables import table
from services.cli.commands.worker import WORKERS

_HEAD = """# Metrics

Each worker serves its own on `/metrics`, at the port of its health pages. Names end in their unit.
Those with a `le` (histograms) come as `_bucket`, `_sum` and `_count`.

"""


def page() -> str:
    """The page, in Markdown."""
    parts = [_HEAD, "## Every worker\n\n", _metrics_of("shared.runtime.metrics")]
    for worker in WORKERS:
        parts += [f"\n## {worker.capitalize()}\n\n", _metrics_of(f"services.{worker}.metrics")]
    return "".join(parts)


def _metrics_of(module: str) -> str:
    rows = []
    for family, labels in families_of(module):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        named = ", ".join(f"`{label}`" for label in labels)
        rows.append((f"`{name}`", family.type, named, family.documentation))
    return table(("metric", "kind", "labels", "meaning"), rows)


def families_of(module: str) -> list[tuple[Metric, list[str]]]:
    """A module's metrics, each with the names of its labels."""
    known = (prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
    return [
        (family, list(metric._labelnames))  # noqa: SLF001 - it has no other way to them
        for metric in vars(importlib.import_module(module)).values()
        if isinstance(metric, known)
        for family in metric.collect()
    ]
