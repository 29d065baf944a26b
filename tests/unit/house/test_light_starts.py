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


def loaded_by(*modules):
    """All that a process has loaded when it has loaded these."""
    run = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def shared():
    return loaded_by(*SHARED)


@pytest.mark.slow(1)
@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_loads_what_it_uses(shared, worker):
    loaded = loaded_by(f"services.{worker}.worker", "services.cli.commands.worker")
    assert HEAVY & loaded <= NEEDED.get(worker, set())
    # Those of tests are forked from a process that has loaded this, and no more than they would.
    assert shared <= loaded
