"""A seed tells the same story each time, in any process."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from services.verify.simulation.campaign import judge, trace_of, warm_up
from services.verify.simulation.plan import Scale

SEED = 11

SMALL = Scale(seconds=14.0, quiet_seconds=6.0, rest_seconds=2.0)

TELL = f"""
from services.verify.simulation.campaign import trace_of, warm_up
from services.verify.simulation.plan import Scale
warm_up()
print("\\n".join(trace_of({SEED}, Scale(seconds=14.0, quiet_seconds=6.0, rest_seconds=2.0))))
"""


def told_elsewhere(hash_seed):
    done = subprocess.run(
        [sys.executable, "-c", TELL],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.slow(12)
def test_two_processes_that_hash_differently_tell_the_same_to_the_last_turn():
    one, other = told_elsewhere("1"), told_elsewhere("2")
    assert one == other
    assert one[-1].startswith("fingerprint ")
    assert len(one) > 50


@pytest.mark.slow(1)
def test_in_one_process_too_whatever_ran_before():
    warm_up()
    first = trace_of(SEED, SMALL)
    other = trace_of(SEED + 1, SMALL)
    assert trace_of(SEED, SMALL) == first
    assert other[-1] != first[-1]


@pytest.mark.slow(1)
def test_names_that_workers_draw_for_themselves_are_of_the_seed_too():
    warm_up()
    scale = replace(SMALL, kinds=("overtaken",))
    for seed in range(SEED, SEED + 10):
        first = trace_of(seed, scale)
        if any("another process has taken a shard over" in line for line in first):
            assert trace_of(seed, scale) == first
            return
    raise AssertionError("no member was overtaken")


@pytest.mark.slow(2)
def test_the_fingerprint_is_of_everything_that_happens():
    warm_up()
    fingerprints = {judge(seed, SMALL).fingerprint for seed in range(5)}
    assert len(fingerprints) == 5
