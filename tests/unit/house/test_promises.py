"""The map of promises in tests/README.md names tests and checks that exist, and every check."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
CHECKS = TESTS.parent / "services/verify/checks"
BEGIN = "\n## Promises, and what holds them\n"
PROMISE = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
NO_CHECK = {
    *("announced.allowed_drift", "announced.drift_since", "announced.standing"),
    "deadlines.deadlines",
    "deadlines.least_rate",
    *("delivery.standing", "downtime.down_within", "downtime.downtimes_of", "pages.without"),
}
"""Public in the checks' folder without being a check: what the checks themselves use."""


def functions_of(file: Path) -> set[str]:
    """The public functions at the top of a file; none where there is no file."""
    if not file.is_file():
        return set()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(file.read_bytes()).body
    return {node.name for node in body if isinstance(node, kinds) and node.name[0] != "_"}


def checks() -> set[str]:
    files = [file for file in CHECKS.glob("*.py") if file.stem not in {"__init__", "finding"}]
    return {f"{f.stem}.{name}" for f in files for name in functions_of(f)} - NO_CHECK


def held_by(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """Promise → the tests, `file::function`, and the checks that are said to hold it."""
    found = {}
    parts = PROMISE.split(text)[1:]
    for promise, rest in zip(parts[::2], parts[1::2], strict=True):
        tests, named = [], []
        for item in re.split(r"^- ", rest, flags=re.MULTILINE)[1:]:
            first, *others = SPAN.findall(item.partition("\n\n")[0])
            if item.startswith("verify: "):
                named += [first, *others]
            else:
                tests += [f"{first}::{name}" for name in others] or [f"{first}::"]
        found[" ".join(promise.split())] = tests, named
    return found


def faults(text: str) -> list[str]:
    """What the map names in vain."""
    found = []
    for promise, (tests, named) in held_by(text).items():
        if not tests:
            found.append(f"{promise}: no test holds it")
        for test in tests:
            file, _, function = test.partition("::")
            if not function.startswith("test_") or function not in functions_of(TESTS / file):
                found.append(f"{promise}: there is no {test}")
        found += [f"{promise}: there is no check {check}" for check in named if check not in KNOWN]
    return found


KNOWN = checks()
MAP = (TESTS / "README.md").read_text(encoding="utf-8").partition(BEGIN)[2]


@pytest.mark.slow(0.5)
def test_every_promise_is_held_by_tests_that_exist():
    assert len(held_by(MAP)) > 20
    assert faults(MAP) == []


def test_every_check_holds_a_promise():
    assert {check for _, named in held_by(MAP).values() for check in named} == KNOWN
    assert len(KNOWN) > 15


def test_every_file_that_the_readme_names_is_there():
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(targets) > 5
    assert [target for target in targets if not (TESTS / target).exists()] == []


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        ("- `unit/nowhere/test_it.py`: `test_it`", "no unit/nowhere/test_it.py::test_it"),
        ("- `unit/house/test_sizes.py`: `test_it`", "no unit/house/test_sizes.py::test_it"),
        ("- `unit/house/test_sizes.py`: `too_long`", "no unit/house/test_sizes.py::too_long"),
        ("- `unit/house/test_sizes.py`", "no unit/house/test_sizes.py::"),
        ("- verify: `limits.budget`", "no test holds it"),
    ],
)
def test_what_is_named_in_vain_is_found(held, fault):
    [found] = faults(f"**All\nis well**, always.\n\n{held}\n")
    assert found.startswith("All is well: ")
    assert fault in found


def test_a_check_that_does_not_exist_is_found():
    here = "- `unit/house/test_promises.py`:\n  `test_a_check_that_does_not_exist_is_found`\n"
    assert faults(f"**Well.**\n\n{here}") == []
    assert faults(f"**Well.**\n\n{here}- verify: `limits.budget`,\n  `limits.moon`\n") == [
        "Well.: there is no check limits.moon"
    ]
