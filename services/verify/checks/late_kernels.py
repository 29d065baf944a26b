"""Whether workers had to compile something although they were ready."""

import json
from collections.abc import Mapping

from services.verify.checks.finding import Finding
from shared.runtime.late_kernels import EVENT


def late_kernels(logs: Mapping[str, str]) -> Finding:
    """Each kernel that a worker compiled, or read from the cache, after its warm-up.

    With a warm cache nobody would notice; with a cold one all shards of the worker stand still.

    Args:
        logs: instance → its log, a JSON object a line.
    """
    offenders = [
        f"{instance}: {name}"
        for instance, text in sorted(logs.items())
        for line in text.splitlines()
        if EVENT in line
        for name in json.loads(line)["kernels"]
    ]
    what = "workers compile nothing once they are ready"
    return Finding.of("late kernels", what, offenders, looked_at=len(logs))
