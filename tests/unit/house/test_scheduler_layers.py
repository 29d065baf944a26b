"""The rules of `services/scheduler/README.md`: who may know whom, and who may know a server."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCHEDULER = "services.scheduler"
MAY_IMPORT = {
    "metrics": set(),
    "state": set(),
    "picking": {"state"},
    "demand": {"state"},
    "flow": {"metrics", "state", "picking", "demand"},
    "warm_up": {"state", "picking", "demand", "flow", "explain"},
    "explain": {"state", "picking"},
    "worker": {"state", "flow", "explain", "warm_up"},
}
"""Part of the scheduler → the other parts that it may import, each above what it imports."""

SERVERS = {"aiokafka", "faust", "mode", "psycopg", "sqlalchemy"}
CLOCKS = {"time", "datetime", "asyncio", "threading", "concurrent"}
MEMORY = {
    f"shared.store.{name}"
    for name in (
        *(
            "growing_table",
            "page_lookup",
            "prefetch",
            "removals",
            "reserved",
        ),  # how rows are kept in memory
        *(
            "columns",
            "history",
            "page_status",
            "source_times",
            "directories",
            "class_numbers",
            "last_imports",
            "row_threads",
        ),  # what a row means, and who works on many
    )
}
"""The modules of the store that connect to nothing."""

UNKNOWN_TO = {
    "state": SERVERS | CLOCKS | {"shared.runtime", "shared.store"},
    "picking": SERVERS | CLOCKS | {"shared.runtime", "shared.store"},
    "demand": SERVERS | CLOCKS | {"shared.runtime", "shared.store"},
    "explain": SERVERS | CLOCKS | {"shared.runtime", "shared.store"},
    "metrics": SERVERS | CLOCKS | {"shared"},
    "warm_up": SERVERS | {"shared.runtime"},
}
"""Part → modules that it must not import, but for those of `MEMORY`."""

MOST_FLOORS = 15
"""Modules above one another at most, from one that imports none of the scheduler to the worker."""


def imports_of(file: Path) -> Iterator[str]:
    """The modules that a file names, wherever in it; of `from a import b` it may be `a.b`."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: relative imports are not read here"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def modules(root: Path) -> dict[str, Path]:
    files = (root / "services/scheduler").rglob("*.py")
    return {".".join(f.relative_to(root).with_suffix("").parts): f for f in files}


def is_in(module: str, names: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def part_of(module: str) -> str:
    """The folder below the scheduler's, or the module that lies there itself."""
    return module.split(".")[2]


def faults(root: Path) -> list[str]:
    """Imports that the tables do not allow."""
    found = []
    for module, file in modules(root).items():
        part = part_of(module)
        if part == "__init__":
            continue
        if part not in MAY_IMPORT:
            found.append(f"{part} is not in MAY_IMPORT")
            continue
        for name in imports_of(file):
            if is_in(name, {SCHEDULER}):
                if part_of(name) not in MAY_IMPORT[part] | {part}:
                    found.append(f"{part} must not import {part_of(name)}: {name}")
            elif is_in(name, UNKNOWN_TO.get(part, set())) and not is_in(name, MEMORY):
                found.append(f"{part} must not know {name}")
    return sorted(found)


def within(root: Path) -> dict[str, set[str]]:
    """Module of the scheduler → the others that it imports."""
    known = modules(root)
    found: dict[str, set[str]] = {}
    for module, file in known.items():
        names = set(imports_of(file))
        names |= {name.rpartition(".")[0] for name in names}
        found[module] = (names & known.keys()) - {module}
    return found


def floors(imported: dict[str, set[str]]) -> dict[str, int]:
    """Module → how many stand above one another from the ground to it. Raises on a cycle."""
    built: dict[str, int] = {}
    while left := imported.keys() - built.keys():
        next_floor = {module for module in left if imported[module] <= built.keys()}
        assert next_floor, f"these import one another: {sorted(left)}"
        for module in next_floor:
            built[module] = 1 + max((built[below] for below in imported[module]), default=0)
    return built


def test_only_flow_knows_the_servers_and_the_clock_and_nobody_looks_up():
    assert faults(ROOT) == []


def test_no_module_comes_back_to_itself_and_the_floors_are_few():
    found = floors(within(ROOT))
    assert max(found, key=found.get) == "services.scheduler.worker"
    assert max(found.values()) <= MOST_FLOORS


def test_no_two_modules_have_one_name():
    names = [file.stem for file in modules(ROOT).values() if file.stem != "__init__"]
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("state/shard.py", "from services.scheduler.picking import calendar", "import picking"),
        ("state/events.py", "from services.scheduler import metrics", "import metrics"),
        ("picking/pens.py", "from services.scheduler.demand.tally import demand_of", "demand"),
        ("demand/ripe.py", "from services.scheduler.picking.wheel import put_off", "picking"),
        ("explain.py", "from services.scheduler.flow import loading", "import flow"),
        ("flow/pacer.py", "from services.scheduler.worker import main", "import worker"),
        ("state/rows.py", "def late():\n    import time", "know time"),
        ("picking/stock.py", "from shared.runtime.clock import Clock", "shared.runtime.clock"),
        ("demand/tally.py", "import aiokafka.structs", "know aiokafka.structs"),
        ("state/packing.py", "from psycopg import Binary", "know psycopg.Binary"),
        ("state/hosts.py", "from shared.store.snapshot import load_shard", "store.snapshot"),
        ("state/hosts.py", "from shared.store import writer", "know shared.store.writer"),
        ("extra/new.py", "import math", "extra is not in MAY_IMPORT"),
    ],
)
def test_what_breaks_a_rule_is_found(tmp_path, file, line, fault):
    path = tmp_path / "services/scheduler" / file
    path.parent.mkdir(parents=True)
    path.write_text(line)
    [found] = faults(tmp_path)
    assert fault in found


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("flow/handler.py", "import time, aiokafka\nfrom shared.store.snapshot import load_shard"),
        ("state/rows.py", "from shared.store.reserved import reserved\nimport math"),
        ("state/hosts.py", "from services.scheduler.state import rows"),
        ("demand/tally.py", "from services.scheduler.state.rows import Rows"),
    ],
)
def test_what_keeps_the_rules_is_not(tmp_path, file, line):
    path = tmp_path / "services/scheduler" / file
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert faults(tmp_path) == []


def test_modules_that_import_one_another_are_found():
    with pytest.raises(AssertionError, match="import one another"):
        floors({"a": {"b"}, "b": {"a"}, "c": set()})
    assert floors({"a": {"b"}, "b": {"c"}, "c": set()}) == {"a": 3, "b": 2, "c": 1}
