"""A worker compiles what it needs before it is ready, and nothing after it.

In a process of its own, as kernels stay in a process once they are there. Whether the cache has
them does not matter: what is read from it late is compiled late where it is empty.
"""

import subprocess
import sys

import pytest

OF_CHECKS = {
    "services.scheduler.state.batches.evidence_in_batch",
    "services.scheduler.state.signal_times._time_in",
    "shared.policy.objectives.objective_value_scalar",
}
"""The simulator's own checks call these."""

RUN = """
import numpy as np

from services.ingester.debounce import Debouncer
from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.explain import page_state
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rules import PickingRules, ShardRules
from services.scheduler.warm_up import _outcomes
from services.verify.simulation import campaign
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.policy.compiled import LateKernels
from shared.rules.page_events import GONE_FOR_GOOD

campaign.warm_up()
Debouncer(1.0)
late = LateKernels()


def explain_a_page_that_is_gone():
    page = identify("http://gone.example/")
    rules = ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0)
    shard = make_shard(0, rules)
    shard.upsert(page, PageUpdate("upsert", page.url), 0.0)
    ids, times = np.array([page.page_id]), np.array([10.0])
    shard.outcomes(_outcomes(ids, times, GONE_FOR_GOOD))
    assert page_state(shard, page, 20.0, 1.0)["status"] == "gone"


def shards_grow():
    rules = ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0)
    shard = make_shard(0, rules)
    for begin in range(0, 2000, 40):
        pages = [identify(f"http://h{n % 300}.example/{n}") for n in range(begin, begin + 40)]
        for page in pages:
            shard.upsert(page, PageUpdate("upsert", page.url), 0.0)
        ids = np.array([page.page_id for page in pages])
        shard.signals(ids, np.full(ids.size, 10.0 + begin), ["feed"] * ids.size)
        shard.signals(ids[::2].copy(), np.full(20, 20.0 + begin), ["other"] * 20)
        shard.select(np.array([30.0 + begin, 31.0 + begin]), 1.0, 0.0)
    for page in pages:
        shard.remove(page.page_id, 1e4)


def many_hosts_are_reported():
    rules = ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0)
    shard = make_shard(0, rules)
    for number in range(9):
        page = identify(f"http://h{number % 3}.example/{number}")
        shard.upsert(page, PageUpdate("upsert", page.url), 0.0)
    reporter = DemandReporter(shard, "me", 10.0)
    for bounds in ({}, {0: 1.0}):
        shard.open_requests._seconds = bounds
        reporter.set_demand(demand_of(shard, 1.0))
        assert reporter.report(10.0, 1.0) is not None


for seed in range(6):
    campaign.judge(seed, campaign.Scale())
explain_a_page_that_is_gone()
shards_grow()
many_hosts_are_reported()
print(*late.names(), sep="\\n")
"""


ASKED_BY_TESTS = {
    "services.scheduler.state.attempts.open_attempt",
    "services.scheduler.state.signal_times._time_in",
}

CALLED = """
import ast, importlib, inspect, pkgutil, sys

from numba.core.dispatcher import Dispatcher

package, warm_up = sys.argv[1:]
importlib.import_module(warm_up).warm_up()


def names_in(module):
    \"\"\"What the functions of a module name that are not compiled themselves.\"\"\"
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(vars(module).get(function.name), Dispatcher):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                yield vars(module).get(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield getattr(vars(module).get(node.value.id), node.attr, None)


path = importlib.import_module(package).__path__
for found in pkgutil.walk_packages(path, f"{package}."):
    for kernel in names_in(importlib.import_module(found.name)):
        if isinstance(kernel, Dispatcher) and not kernel.signatures:
            print(f"{kernel.py_func.__module__}.{kernel.__name__}")
"""


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    ("package", "warm_up"),
    [
        ("services.scheduler", "services.scheduler.warm_up"),
        ("services.estimator", "services.estimator.compilation"),
    ],
)
def test_whatever_a_worker_calls_was_called_in_its_warm_up(package, warm_up):
    run = [sys.executable, "-c", CALLED, package, warm_up]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= ASKED_BY_TESTS


def late_ones():
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow(12)
@pytest.mark.timeout(1200)
@pytest.mark.long
def test_nothing_is_compiled_while_faults_come_and_go():
    late = late_ones() - OF_CHECKS
    if late:
        # Where the cache was empty, what the checks' own kernels call was compiled with them. Once
        # they are in the cache, only what is called by itself is read from it.
        late = late_ones() - OF_CHECKS

    assert late == set()
