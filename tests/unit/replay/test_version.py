"""A result names the code that made it, whatever part of it that is."""

from pathlib import Path

from services.replay import version
from shared.policy.sources import sources_of


def test_all_that_a_result_depends_on_is_in_the_version() -> None:
    folder = Path(version.__file__).parent
    root = folder.parents[1]
    found = {
        path.relative_to(root).as_posix()
        for name in version._ROOTS
        for path in sources_of(folder / name)
    }
    assert {
        "services/replay/by_calendar.py",
        "services/replay/experiments/accuracy.py",
        "services/scheduler/picking/calendar.py",
        "services/scheduler/state/batches.py",
        "services/estimator/refitting.py",
        "shared/policy/estimation/map_kernel.py",
    } <= found
    assert "+" in version.code_version()


def test_every_way_to_bend_a_trace_is_in_the_version() -> None:
    folder = Path(version.__file__).parent
    found = {path for name in version._ROOTS for path in sources_of(folder / name)}
    # Pictures show what results are, and are none.
    without = {"__init__.py", "plots.py", "drawing.py"}
    assert {path for path in folder.rglob("*.py") if path.name not in without} <= found
