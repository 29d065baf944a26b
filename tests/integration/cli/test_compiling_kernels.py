"""`freshet kernels`: an image that is built with it compiles nothing as its workers start."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]

WARM_UPS = (
    "from services.scheduler.warm_up import warm_up; warm_up()",
    "from services.estimator.compilation import warm_up; warm_up()",
    "from services.ingester.debounce import Debouncer; Debouncer(1.0)",
)


@pytest.mark.long
@pytest.mark.slow(90)
def test_no_worker_compiles_what_was_compiled_as_it_was_installed(tmp_path):
    installed, own = tmp_path / "installed", tmp_path / "own"
    for part in ("services", "shared", "migrations", "deploy"):
        shutil.copytree(
            PROJECT / part, installed / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    generic = os.environ | {"PYTHONPATH": str(installed), "NUMBA_CPU_NAME": "generic"}
    generic.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", "from services.cli.main import main; main()", "kernels"]
    subprocess.run(command, cwd=tmp_path, env=generic, check=True)
    assert list(installed.rglob("*.nbc"))
    assert list(installed.rglob("rate_tables.*.npy"))

    for warm_up in WARM_UPS:
        command = [sys.executable, "-c", warm_up]
        subprocess.run(
            command, cwd=tmp_path, env=generic | {"NUMBA_CACHE_DIR": str(own)}, check=True
        )
        compiled = sorted(path.name for path in own.rglob("*.nbc"))
        assert compiled == [], f"{warm_up} compiles"
