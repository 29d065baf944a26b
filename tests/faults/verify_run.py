"""`freshet verify` as a process of its own, and what a test demands of its report."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROMISES = ("lost", "duplicated", "over_budget_seconds", "over_limit_hosts", "forgotten_pages")
TIMED = {
    *("filled in time", "budget by arrival", "host limits by arrival"),
    *("recovery", "in order"),
}
"""Checks by how soon the broker had a request, how soon the system was back, and how much of what
came was late, which is the machine's matter as well. No test asserts a time, and beside other tests
there is none to spare: `make verify` judges by them."""


def verify(keep: Path, *options: str) -> dict[str, Any]:
    """Run it; its report, in which no promise is broken."""
    known = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FRESHET_") and name not in known
    }
    command = [sys.executable, "-m", "services.cli.main", "verify", "--json", "--keep", str(keep)]

    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=900,
    )

    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    # What is broken comes first, as long output is cut.
    failed = [check for check in report["checks"] if not check["passed"]]
    broken = [check for check in failed if check["check"] not in TIMED]
    assert not broken, (broken, report["injected"])
    assert report["passed"] == (not failed)
    assert (done.returncode == 0) == report["passed"], done.stderr
    assert [report[promise] for promise in PROMISES] == [0] * len(PROMISES)
    return report
