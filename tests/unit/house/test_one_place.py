"""What is written once stays written once."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SECONDS_OF_A_DAY = {
    "shared/units.py",
    # The bounds of messages: they are a part of the contract, which is written down by itself.
    "shared/contracts/messages.py",
    "shared/contracts/daily.py",
}


def files_with_number(number: float) -> set[str]:
    found = set()
    for top in ("services", "shared", "deploy", "migrations"):
        for file in (ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Constant) and node.value == number:
                    found.add(file.relative_to(ROOT).as_posix())
    return found


@pytest.mark.slow(2)
def test_a_day_has_its_seconds_in_one_place():
    assert files_with_number(86_400) == SECONDS_OF_A_DAY


def test_only_one_file_says_how_long_to_wait_for_a_server_that_is_away():
    waits = {
        file.relative_to(ROOT).as_posix()
        for top in ("services", "shared", "deploy")
        for file in (ROOT / top).rglob("*.py")
        if "tenacity.wait_" in file.read_text()
    }

    assert waits == {"shared/runtime/retrying.py"}


def test_private_parts_of_others_are_touched_where_it_is_said():
    # `make lint` finds every access to a private part; this is where one is excused.
    excused = {
        file.relative_to(ROOT).as_posix()
        for top in ("services", "shared", "deploy", "migrations")
        for file in (ROOT / top).rglob("*.py")
        if "noqa: SLF001" in file.read_text()
    }

    assert excused == {
        "shared/runtime/aiokafka_patches.py",
        "shared/policy/compiled.py",  # numba's: where a kernel's machine code is kept
        "shared/policy/calls_apart.py",  # numba's: how a kernel's machine code is linked
        "deploy/docs/metrics.py",  # prometheus_client: the names of a metric's labels
        "services/bench/loop_blocks.py",  # asyncio's own: what blocks the loop
        "services/verify/simulation/loop.py",  # asyncio's own: it is another loop
        "services/verify/simulation/workers.py",  # ours: what a worker's base class would do
        "services/verify/simulation/facts.py",  # ours: what a scheduler has in memory
        "services/verify/simulation/loads.py",  # ours: when a scheduler has loaded shards
        "services/verify/simulation/looking.py",  # ours: what a scheduler picks from
        "services/verify/mutants/learning.py",  # ours: where faults are planted
        "services/verify/mutants/pacing.py",  # the same
        "services/verify/mutants/picking.py",  # the same
    }
