"""A worker loads no library that it does not use: who is killed is back the sooner."""

import subprocess
import sys

import pytest

from services.cli.commands.worker import WORKERS

HEAVY = {"sqlalchemy", "alembic", "scipy.special", "scipy.optimize", "scipy.stats", "matplotlib"}
HEAVY |= {"opentelemetry"}  # traces are off
NEEDED = {
    "coordinator": {"scipy.special", "scipy.optimize"},  # solves for λ₀
    "estimator": {"scipy.special"},  # priors of hosts
}


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_loads_what_it_uses(worker):
    run = f"import sys, services.{worker}.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) <= NEEDED.get(worker, set())
