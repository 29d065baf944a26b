"""`freshet verify` in its short form: every kind of fault once, on both brokers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from apache import need_apache_kafka

from services.verify.plan import FAULTS

SEED = "3"
PROMISES = ("lost", "duplicated", "over_budget_seconds", "over_limit_hosts", "forgotten_pages")
TIMED = {"filled in time", "budget by arrival", "host limits by arrival"}
"""Checks by how soon the broker had a request, which is the machine's matter as well. No test
asserts a time, and beside other tests there is none to spare: `make verify` judges by them."""


@pytest.mark.slow(85)
@pytest.mark.postgres
@pytest.mark.timeout(420)
@pytest.mark.parametrize("broker", ["local", "apache"])
def test_no_fault_breaks_a_promise(tmp_path: Path, broker: str) -> None:
    if broker == "apache":
        need_apache_kafka()
    known = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FRESHET_") and name not in known
    }
    command = [sys.executable, "-m", "services.cli.main", "verify", "--json", "--broker", broker]

    done = subprocess.run(
        [*command, "--minutes", "1", "--seed", SEED, "--keep", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=400,
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
    assert min(report["looked_at"].values()) > 0, report["looked_at"]
    assert set(report["faults"]) == set(FAULTS)
