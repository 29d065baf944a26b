"""A plan as the chart's `values.yaml` has it."""

import math
from collections.abc import Mapping
from typing import Any, Final

from services.plan.sizing import Plan

_MI: Final = 1024.0**2
_STEP: Final = 256


def values_of(sizes: Plan, settings: Mapping[str, float]) -> dict[str, Any]:
    """The part of `values.yaml` that says so.

    Args:
        sizes: what was planned.
        settings: that it was planned by and are not the default: the sizes hold with them only.
    """
    workers = {}
    for name, worker in sizes.workers.items():
        memory = f"{math.ceil(worker.memory_bytes / (_STEP * _MI)) * _STEP}Mi"
        workers[name] = {
            "replicas": worker.replicas,
            "resources": {
                "requests": {"cpu": f"{round(1000 * worker.cores)}m", "memory": memory},
                "limits": {"memory": memory},
            },
        }
    return {
        "shards": sizes.shards,
        "kafka": {"replicationFactor": sizes.kafka.copies},
        **({"settings": dict(settings)} if settings else {}),
        "workers": workers,
    }
