"""Kernels that others call: one copy of what is large, wherever it was compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.policy.sources import PROJECT

KERNELS = """
import math
import sys

from shared.policy.compiled import LateKernels, compiled
from constants import FIRST

@compiled
def small(number):
    return number + 0.5

def made_of(power):
    @compiled
    def large(number):
        found = FIRST
{terms}
        if number < 0.0:
            raise ValueError("negative")
        return small(found) ** power
    return large

large, larger = made_of(1), made_of(2)

@compiled
def one(number):
    return large(number) + 1.0

@compiled
def other(number):
    return larger(number) + one(number)

@compiled
def countdown(number):
    return 0.0 if number < 0.0 else large(number) + countdown(number - 1.0)
""".replace(
    "{terms}",
    "\n".join(
        f"        found += math.sin(number * {term}.0) if number > {term}.0 else number"
        for term in range(40)
    ),
)

RUN = """
import json
import kernels

before = kernels.LateKernels()
found = [float(eval(call, vars(kernels))) for call in json.loads(kernels.sys.argv[1])]
compiled = sum(
    sum(one.stats.cache_misses.values())
    for kernel in vars(kernels).values() if hasattr(kernel, "called")
    for one in (kernel, kernel.called)
)
defined = sorted(
    function.name
    for kernel in (kernels.one, kernels.other)
    for result in kernel.overloads.values()
    for function in result.library._final_module.functions
    if not function.is_declaration
)
print(json.dumps([found, compiled, defined]))
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "constants.py").write_text("FIRST = 0.0\n")
    (tmp_path / "run.py").write_text(RUN)
    return tmp_path


def run(project: Path, *calls: str) -> tuple[list[float], int, list[str]]:
    """What kernels answer in a process of its own, how many it compiled, and what is in callers."""
    environment = os.environ | {
        "PYTHONPATH": f"{PROJECT}:{project}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(project / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "run.py", json.dumps(calls)],
        cwd=project,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found, compiled, defined = json.loads(done.stdout)
    return found, compiled, defined


@pytest.mark.slow(10)
@pytest.mark.long
def test_what_is_large_is_called_where_it_is_in_this_process_and_in_the_next(project):
    calls = ["other(0.0)", "one(0.0)", "large(0.0)", "countdown(0.0)"]
    expected = [0.25 + 1.5, 1.5, 0.5, 0.5]
    found, compiled, defined = run(project, *calls)
    assert found == expected
    assert not any("large" in name for name in defined), "a copy in who calls it"
    assert compiled > 0

    assert run(project, *calls)[:2] == (expected, 0), "all was kept"
    assert run(project, "countdown(0.0)", "one(0.0)")[:2] == ([0.5, 1.5], 0), "in any order"

    # What is called is gone from the disk: who calls it must not run into nothing.
    for path in (project / "cache").rglob("*large*-called*.nbc"):
        path.unlink()
    found, compiled, _ = run(project, "other(0.0)")
    assert (found, compiled) == ([1.75], 2)

    (project / "constants.py").write_text("FIRST = 4.0\n")
    assert run(project, *calls)[0] == [4.5**2 + 5.5, 5.5, 4.5, 4.5]


@pytest.mark.slow(2)
def test_errors_come_through(project):
    (project / "run.py").write_text("import kernels\nkernels.other(-1.0)\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(project)
    assert "ValueError: negative" in failed.value.stderr
