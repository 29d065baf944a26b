"""A worker that is forked, loaded, is one that is started: it ends, writes and heeds the same."""

import os
import signal
import subprocess
from pathlib import Path

import forking
import psutil
import pytest
from workers import WorkerProcess, settings_for

SETTINGS = settings_for("127.0.0.1:1", "forking")
"""Of a broker that nobody has."""


def ended(log, alone, variables):
    """The exit code of an ingester, and what it wrote."""
    process = WorkerProcess("ingester", SETTINGS, log, None, variables, alone)
    return process._process.wait(60), process.log


def libraries_of(process):
    """The files of compiled libraries that it has loaded."""
    return Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.slow(2)
def test_it_reads_its_own_environment_writes_to_its_own_log_and_ends_as_if_alone(tmp_path):
    before = os.environ.copy()
    wrong = {"FRESHET_PARTITIONS": "none"}
    code, written = ended(tmp_path / "forked", False, wrong)
    assert "partitions: Input should be a valid integer" in written
    assert code > 0
    assert (code, written) == ended(tmp_path / "alone", True, wrong)
    _, written = ended(tmp_path / "next", False, {"FRESHET_NONSENSE": "1"})
    assert "NONSENSE" in written.upper()
    assert "partitions" not in written
    assert os.environ == before


def test_it_has_a_process_of_its_own_that_may_be_killed_stopped_and_waited_for(tmp_path):
    one, two = (WorkerProcess("ingester", SETTINGS, tmp_path / name) for name in ("one", "two"))
    try:
        assert one.pid != two.pid
        assert one.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            one._process.wait(0.01)
        one.pause()
        one.kill()
        assert one.poll() == -signal.SIGKILL
        one.terminate()  # too late, and harmless
        assert two.poll() is None
        code = two.stop()
        assert two.poll() == code
    finally:
        two.kill()


@pytest.mark.slow(1)
def test_it_has_loaded_what_its_kind_loads_and_nothing_of_another(tmp_path):
    other = WorkerProcess("estimator", SETTINGS, tmp_path / "other")
    process = WorkerProcess("discoverer", SETTINGS, tmp_path / "log")
    try:
        assert "/llvmlite/" in libraries_of(other)
        assert "/aiohttp/" in libraries_of(process)
        assert "/llvmlite/" not in libraries_of(process)
    finally:
        other.kill()
        process.kill()


def test_a_kind_is_loaded_once_for_all_processes_of_tests_and_each_knows_how_its_own_end(
    tmp_path, monkeypatch
):
    one = WorkerProcess("ingester", SETTINGS, tmp_path / "one")
    # As another process of the same run begins.
    monkeypatch.setattr(forking, "_kinds", {})
    monkeypatch.setattr(forking, "_roots", [])
    two = WorkerProcess("ingester", SETTINGS, tmp_path / "two")
    try:
        parents = [psutil.Process(process.pid).parent() for process in (one, two)]
        assert parents[0] != parents[1]
        assert parents[0].parent() == parents[1].parent()
        two.kill()
        assert two._process.wait(60) == -signal.SIGKILL
        forking._end()
        assert one.poll() is None
    finally:
        one.kill()
        two.kill()
    assert one._process.wait(60) == -signal.SIGKILL


def test_nothing_is_left_when_all_have_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", f"another-{os.getpid()}")
    monkeypatch.setattr(forking, "_kinds", {})
    monkeypatch.setattr(forking, "_roots", [])
    process = WorkerProcess("discoverer", SETTINGS, tmp_path / "log")
    forked = psutil.Process(process.pid)
    above = forked.parents()[:3]
    process.kill()
    assert process._process.wait(60) == -signal.SIGKILL
    forking._end()
    _, alive = psutil.wait_procs(above, timeout=60)
    assert alive == []
