"""Which seeds the simulator is run with: new ones in each run, the same for all of its workers.

A pytest plugin, which `conftest.py` loads. It says last which seeds they were, so that any run can
be repeated.
"""

import os
import secrets
from typing import Any, Final

import pytest

FIRST: Final = "FRESHET_SIMULATION_SEED"
"""Environment: the first seed."""

COUNT: Final = "FRESHET_SIMULATION_SEEDS"
"""Environment: how many."""

USUAL_COUNT: Final = 200

SEEDS: Final = 10**9
"""New ones are drawn from so many."""

_CHOSEN: Final = pytest.StashKey[range]()
_USED: Final = "simulated"


def pytest_configure(config: pytest.Config) -> None:
    """Choose them; a worker is told which."""
    given = getattr(config, "workerinput", {})
    first = given.get(FIRST) or int(os.environ.get(FIRST) or secrets.randbelow(SEEDS))
    count = int(os.environ.get(COUNT) or USUAL_COUNT)
    config.stash[_CHOSEN] = range(first, first + count)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker which they are."""
    node.workerinput[FIRST] = node.config.stash[_CHOSEN].start


@pytest.fixture
def simulated_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> range:
    """All seeds of this run."""
    for name in (FIRST, COUNT):
        monkeypatch.delenv(name, raising=False)  # they are no settings of workers
    request.node.user_properties.append((_USED, True))
    return request.config.stash[_CHOSEN]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which seeds were run."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, ())]
    if any((_USED, True) in map(tuple, getattr(one, "user_properties", ())) for one in reports):
        seeds = config.stash[_CHOSEN]
        terminalreporter.write_line(
            f"simulated seeds {seeds.start} to {seeds.stop - 1}; again: {FIRST}={seeds.start}"
        )
