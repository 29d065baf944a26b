"""The dashboard by worker: a panel for every metric that the code has.

`make dashboard` writes deploy/grafana/workers.json, and a test compares. The other dashboard is
composed by hand, for a look at the whole.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client import Metric

from deploy.docs.metrics import families_of
from services.cli.commands.worker import WORKERS

COLUMNS: Final = 3
WIDTH: Final = 24 // COLUMNS
HEIGHT: Final = 8

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

_UNITS: Final = {
    "_seconds": "s",
    "_bytes": "bytes",
    "_ratio": "percentunit",
    "_crawls_per_second": "cps",
}
"""End of a metric's name → Grafana's unit; else `short`."""


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, module in _modules():
        top = _add_row(panels, title, module, top)
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "uid": "freshet-workers",
        "title": "Freshet by worker",
        "tags": ["freshet"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_variable("datasource"), _namespaces(), _jobs()]},
        "annotations": {"list": []},
        "panels": panels,
    }


def _modules() -> Iterator[tuple[str, str]]:
    yield "Every worker", "shared.runtime.metrics"
    for worker in WORKERS:
        yield worker.capitalize(), f"services.{worker}.metrics"


def _variable(name: str) -> dict[str, Any]:
    return {"name": name, "type": "datasource", "query": "prometheus", "label": "Data source"}


def _namespaces() -> dict[str, Any]:
    """Of installations that the same Prometheus watches; where it has none, all."""
    return {
        "name": "namespace",
        "type": "query",
        "label": "Namespace",
        "datasource": _SOURCE,
        "query": 'label_values(up{job=~"freshet-.*"}, namespace)',
        "multi": False,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 1,
    }


def _jobs() -> dict[str, Any]:
    return {
        "name": "job",
        "type": "query",
        "label": "Worker",
        "datasource": _SOURCE,
        "query": 'label_values(up{job=~"freshet-.*"}, job)',
        "multi": True,
        "includeAll": True,
        "allValue": "freshet-.*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 1,
    }


def _add_row(panels: list[dict[str, Any]], title: str, module: str, top: int) -> int:
    """Add a row with a module's metrics; returns where the next one begins."""
    place = {"h": 1, "w": 24, "x": 0, "y": top}
    panels.append(
        {"type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
    )
    top += 1
    metrics = families_of(module)
    for number, (family, labels) in enumerate(metrics):
        column, line = number % COLUMNS, number // COLUMNS
        place = {"h": HEIGHT, "w": WIDTH, "x": WIDTH * column, "y": top + HEIGHT * line}
        panels.append({**_panel(family, labels), "gridPos": place})
    return top + HEIGHT * -(-len(metrics) // COLUMNS)


def _panel(family: Metric, labels: list[str]) -> dict[str, Any]:
    by = ["job", *labels]
    return {
        "type": "timeseries",
        "title": family.name.removeprefix("freshet_").replace("_", " "),
        "description": family.documentation,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {"unit": _unit(family), "custom": {"lineWidth": 2, "fillOpacity": 5}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {
                "refId": "A",
                "datasource": _SOURCE,
                "expr": _expression(family, by),
                "legendFormat": " ".join(f"{{{{{label}}}}}" for label in by),
            }
        ],
    }


def _expression(family: Metric, by: list[str]) -> str:
    """What is shown of a metric: of a counter its rate, of a histogram its 99th percentile."""
    chosen = '{namespace=~"$namespace", job=~"$job"}'
    names = ", ".join(by)
    if family.type == "counter":
        return f"sum by ({names}) (rate({family.name}_total{chosen}[$__rate_interval]))"
    if family.type == "histogram":
        rates = f"rate({family.name}_bucket{chosen}[$__rate_interval])"
        return f"histogram_quantile(0.99, sum by ({names}, le) ({rates}))"
    # Each of a worker's replicas says the same, or a part: the largest shows what is wrong.
    return f"max by ({names}) ({family.name}{chosen})"


def _unit(family: Metric) -> str:
    if family.type == "counter":
        return "cps"
    return next((unit for end, unit in _UNITS.items() if family.name.endswith(end)), "short")


def text() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
