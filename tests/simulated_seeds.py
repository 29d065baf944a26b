"""Which seeds the simulator is run with: the same ones in each run, and for all of its workers.

So what fails is what was changed, and not the day's luck. `make long` goes on where they end; new
ones are for `make simulate`.

A pytest plugin, which `conftest.py` loads. It says last which seeds they were, so that any run can
be repeated.
"""

import os
import secrets
from typing import Any, Final

import pytest

FIRST: Final = "FRESHET_SIMULATION_SEED"
"""Environment: the first seed, or `NEW`."""

NEW: Final = "new"
"""Seeds that nobody has run before, as far as luck goes."""

COUNT: Final = "FRESHET_SIMULATION_SEEDS"
"""Environment: how many."""

USUAL_FIRST: Final = 1
USUAL_COUNT: Final = 20

SEEDS: Final = 10**9
"""New ones are drawn from so many."""

_CHOSEN: Final = pytest.StashKey[range]()
_CHOSEN_BY: Final = "simulated seeds"
_USED: Final = "simulated"


def pytest_configure(config: pytest.Config) -> None:
    """Choose them; a worker is told which."""
    # Taken out of the environment: they are no settings of workers, which refuse what they do not
    # know.
    named = [os.environ.pop(name, None) for name in (FIRST, COUNT)]
    first, count = getattr(config, "workerinput", {}).get(_CHOSEN_BY) or (
        secrets.randbelow(SEEDS) if named[0] == NEW else int(named[0] or USUAL_FIRST),
        int(named[1] or USUAL_COUNT),
    )
    config.stash[_CHOSEN] = range(first, first + count)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker which they are."""
    seeds = node.config.stash[_CHOSEN]
    node.workerinput[_CHOSEN_BY] = (seeds.start, len(seeds))


@pytest.fixture
def simulated_seeds(request: pytest.FixtureRequest) -> range:
    """All seeds of this run."""
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
