"""Flame graphs of running programs."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from services.bench import flame_graphs
from services.bench.flame_graphs import FlameGraphs, NotDrawn, pythons
from services.bench.pipeline import command

_BUSY = """
def counting_for_ever():
    print("here", flush=True)
    while True:
        sum(range(1000))
counting_for_ever()
"""


@pytest.fixture
def program():
    argv = [sys.executable, "-c", _BUSY]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"here\n"
        yield process
        process.kill()


@pytest.mark.slow(1)
def test_a_graph_shows_where_a_program_is(tmp_path, program):
    try:
        [path] = FlameGraphs(tmp_path / "new", {"worker": program.pid}, "500", 1.0).done()
    except NotDrawn as error:
        if "ermission" in str(error):
            pytest.skip(f"nobody may look into another process here: {error}")
        raise
    assert path.name == "worker-500.svg"
    assert "counting_for_ever" in path.read_text()


@pytest.mark.slow(1)
def test_a_sampler_that_is_behind_draws_what_it_has(tmp_path, program, monkeypatch):
    """As on a crowded machine: it would take ten minutes more."""
    monkeypatch.setattr(flame_graphs, "_GRACE_SECONDS", 1.0)
    graphs = FlameGraphs(tmp_path, {"worker": program.pid}, "500", 600.0)
    try:
        [path] = graphs.done()
    except NotDrawn as error:
        if "ermission" in str(error):
            pytest.skip(f"nobody may look into another process here: {error}")
        raise
    assert "counting_for_ever" in path.read_text()


def test_a_program_that_is_not_there_is_said(tmp_path, program):
    program.kill()
    program.wait()
    with pytest.raises(NotDrawn, match=r"worker-500\.svg: "):
        FlameGraphs(tmp_path, {"worker": program.pid}, "500", 1.0).done()


def test_only_programs_in_python_are_drawn(program):
    with subprocess.Popen(["sleep", "60"]) as other:
        found = pythons([("worker", program.pid), ("server", other.pid), ("none", None)])
        other.kill()
    assert found == {"worker": program.pid}


def test_who_has_no_sampler_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(flame_graphs.shutil, "which", lambda *_, **__: None)
    with pytest.raises(NotDrawn, match="pip install py-spy"):
        FlameGraphs(tmp_path, {}, "500", 1.0)


def test_only_the_loop_can_be_drawn(tmp_path):
    answer = CliRunner().invoke(command, ["--part", "estimator", "--profile", str(tmp_path)])
    assert answer.exit_code == 2
    assert "add --part loop" in answer.output
