"""A worker loads no library that it does not use: who is killed is back the sooner."""

import subprocess
import sys

import pytest
from forking import SHARED

from services.cli.commands.worker import WORKERS

HEAVY = {"sqlalchemy", "alembic", "scipy.special", "scipy.optimize", "scipy.stats", "matplotlib"}
HEAVY |= {"opentelemetry"}  # traces are off
NEEDED = {
    "coordinator": {"scipy.special", "scipy.optimize"},  # solves for λ₀
    "estimator": {"scipy.special"},  # priors of hosts
}

OF_ALL = ("aiohttp", "aiokafka", "faust", "msgspec", "numpy", "pydantic")
"""Libraries that every worker uses: loaded once here, as they take longest."""

RUN = """
import importlib, os, sys

of_all, *kinds = (modules.split(",") for modules in sys.argv[1:])
for module in of_all:
    importlib.import_module(module)
for modules in kinds:
    if os.fork() == 0:
        for module in modules:
            importlib.import_module(module)
        print(*sys.modules, flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"{modules} cannot be loaded")
"""


def loaded_by(*kinds):
    """All that a process has loaded when it has loaded these modules; of each of some kinds."""
    arguments = [",".join(modules) for modules in (OF_ALL, *kinds)]
    run = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def loaded():
    """Worker → what it loads; and what those of tests find loaded, as they are forked."""
    of_workers = [(f"services.{name}.worker", "services.cli.commands.worker") for name in WORKERS]
    return dict(zip((*WORKERS, "shared"), loaded_by(*of_workers, SHARED), strict=True))


@pytest.mark.slow(1)
@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_loads_what_it_uses(loaded, worker):
    assert HEAVY & loaded[worker] <= NEEDED.get(worker, set())
    # Those of tests are forked from a process that has loaded this, and no more than they would.
    assert loaded["shared"] <= loaded[worker]
