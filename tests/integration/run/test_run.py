"""`freshet run` as a user runs it: a short world on the embedded database and the local broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scratch import leftovers

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

PAGES = "url,importance\n" + "".join(
    f"https://h{i % 7}.example/{i},{1 + i % 5}\n" for i in range(300)
)
EVENTS = "time_days,url,event,source\n" + "".join(
    f"{0.01 * i},https://h{i * 3 % 300 % 7}.example/{i * 3 % 300},{kind},ping\n"
    for i in range(1, 400)
    for kind in ("change", "signal")
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FRESHET_")
        and name not in {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}
    }
    command = [sys.executable, "-m", "services.cli.main", "run", "--no-view"]
    return subprocess.run(
        [*command, "--data-dir", str(folder / "data"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
        timeout=280,
    )


@pytest.mark.slow(30)
@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_trace_is_replayed_within_the_budget(system_dir: Path) -> None:
    (system_dir / "pages.csv").write_text(PAGES)
    (system_dir / "events.csv").write_text(EVENTS)
    report_file = system_dir / "report.json"

    done = run(
        system_dir,
        *("--pages", "pages.csv", "--events", "events.csv", "--seconds", "8", "--speed", "0.5"),
        *("--crawls-per-day", "40", "--bandwidth-at", "2:80", "--partitions", "4"),
        *("--report", str(report_file), "--json"),
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(report_file.read_text())
    assert json.loads(done.stdout) == report
    assert report["days"] == pytest.approx(4.0)
    assert report["crawls"] > 100
    assert report["seconds_over_budget"] == 0
    assert report["unanswered"] == 0
    assert report["answered"] == report["requests"]
    assert report["answered_twice"] == 0
    assert report["duplicate_requests_in_flight"] == 0
    assert report["dead_letters"] == 0
    assert report["signals"] == EVENTS.count("signal")
    assert len(report["daily_freshness"]) == 4
    assert 0.5 < report["freshness"] <= 1
    assert leftovers(system_dir) == []


@pytest.mark.timeout(60)
@pytest.mark.long
def test_a_trace_that_cannot_be_read_stops_everything(system_dir: Path) -> None:
    (system_dir / "pages.csv").write_text(PAGES)
    (system_dir / "events.csv").write_text(EVENTS + "soon,https://h0.example/0,change,\n")

    done = run(
        system_dir,
        *("--pages", "pages.csv", "--events", "events.csv", "--crawls-per-day", "40"),
        *("--days", "1", "--partitions", "2"),
    )

    assert done.returncode == 2
    assert "events.csv" in done.stderr
    assert "time_days" in done.stderr
    assert "Traceback" not in done.stderr
    assert leftovers(system_dir) == []
