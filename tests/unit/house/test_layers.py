"""Who may import whom: the floors of the house, from the ground up.

A folder may import what its row names, and no row names one that stands below it in the table: so
no import goes up, and there are no cycles. A row can be of a single file, or of a folder within a
folder: the longest name that fits a module is its row.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = ("shared", "migrations", "deploy", "services")

GROUND = {"shared.units", "shared.contracts"}
MATHEMATICS = {"shared.policy"}
WORKER = GROUND | MATHEMATICS | {"shared.pacing", "shared.store", "shared.rules"}
WORKER |= {"shared.runtime", "shared.discovery"}
ONE_MACHINE = GROUND | {"shared.runtime", "deploy.local", "migrations"}

MAY_IMPORT: dict[str, set[str]] = {
    # The ground: what everybody speaks of.
    "shared.units": set(),
    "shared.contracts": {"shared.units"},
    # Pure: no Kafka, no PostgreSQL, no clock (see `UNKNOWN_TO`).
    "shared.policy": GROUND,
    "shared.pacing": GROUND,
    # The terminal, and the two servers, which know nothing of each other.
    "shared.terminal": set(),
    "shared.store": GROUND | MATHEMATICS,
    # What events do to pages, for all who keep them.
    "shared.rules": GROUND | MATHEMATICS | {"shared.store"},
    # Logs may be for people.
    "shared.runtime": GROUND | {"shared.terminal"},
    # What sites say of themselves, fetched.
    "shared.discovery": GROUND | {"shared.runtime"},
    # What people are shown, by commands and by the coordinator's page.
    "shared.views": GROUND | MATHEMATICS | {"shared.store", "shared.rules", "shared.runtime"},
    "migrations": {"shared.store", "shared.runtime"},
    "deploy": set(),
    "deploy.local": set(),
    # The workers: none of them knows another one.
    "services.ingester": WORKER,
    "services.estimator": WORKER,
    "services.scheduler": WORKER,
    "services.coordinator": WORKER | {"shared.views"},
    "services.receiver": WORKER,
    "services.poller": WORKER,
    "services.frontier": WORKER,
    "services.discoverer": WORKER,
    # The folders within a worker have their rows here, each after those that it may import.
    #
    # Around them: the simulated web, one machine with everything, the lab, the faults.
    "services.world": GROUND | {"shared.store", "shared.runtime"},
    "services.run": ONE_MACHINE | {"shared.terminal", "services.world"},
    # Real sites and a crawler beside what `services.run` starts.
    "services.demo": ONE_MACHINE | {"shared.terminal", "services.run"},
    # The lab runs the scheduler's and the estimator's own code; the checks share none with the
    # workers but the mathematics.
    "services.replay": GROUND
    | MATHEMATICS
    | {"shared.store", "shared.rules", "services.scheduler", "services.estimator"}
    | {"services.world"},
    "services.verify": ONE_MACHINE | MATHEMATICS | {"shared.store", "services.world"},
    # But the simulator runs the workers' own code, all of it.
    "services.verify.simulation": WORKER
    | ONE_MACHINE
    | {"services.verify"}
    | {f"services.{name}" for name in ("ingester", "estimator", "scheduler", "coordinator")},
    # And so do the faults that are planted into it.
    "services.verify.mutants": WORKER
    | {"services.verify", "services.verify.simulation"}
    | {f"services.{name}" for name in ("ingester", "estimator", "scheduler", "coordinator")},
    # How large an installation must be: sums, of what was measured.
    "services.plan": GROUND,
    # Benchmarks look into everything but the checks and the command line.
    "services.bench": WORKER
    | ONE_MACHINE
    | {"shared.terminal", "services.world", "services.run", "services.replay", "services.plan"}
    | {f"services.{name}" for name in ("ingester", "estimator", "scheduler", "coordinator")},
    # What starts the simulated world, and nothing else of the command line, knows it.
    "services.cli.commands.world": {"services.cli", "services.world"},
    # And what compiles for the workers knows those that have kernels.
    "services.cli.commands.kernels": {"services.cli", "shared.contracts", "shared.rules"}
    | {"services.ingester", "services.estimator", "services.scheduler"},
    "services.cli": WORKER
    | {"shared.terminal", "shared.views", "migrations"}
    | {"services.run", "services.demo", "services.replay"}
    | {"services.verify", "services.verify.simulation", "services.verify.mutants"}
    | {"services.plan", "services.bench"}
    # Whose positions it shows and settles.
    | {"services.ingester", "services.estimator", "services.discoverer"},
    # The pages of the documentation that are made from the code.
    "deploy.docs": WORKER
    | ONE_MACHINE
    | {"services.cli", "services.verify.mutants"}
    | {f"services.{name}" for name in ("ingester", "estimator", "scheduler", "coordinator")},
}

CLOCKS = {"time", "asyncio"}
KAFKA = {"aiokafka", "faust", "mode"}
POSTGRES = {"psycopg", "sqlalchemy", "alembic"}

UNKNOWN_TO: dict[str, set[str]] = {
    "shared.units": CLOCKS | KAFKA | POSTGRES,
    "shared.contracts": CLOCKS | KAFKA | POSTGRES,
    "shared.policy": CLOCKS | KAFKA | POSTGRES,
    "shared.pacing": CLOCKS | KAFKA | POSTGRES,
    "shared.store": KAFKA,
    "shared.views": KAFKA,
    "shared.runtime": POSTGRES,
    "shared.discovery": KAFKA | POSTGRES,
    "shared.terminal": KAFKA | POSTGRES,
    "services.plan": CLOCKS | KAFKA | POSTGRES,
}
"""Row → modules of others that it must not import."""

EXCEPTIONS = {
    # Kafka's own partitioner, a pure function: shards are what it says.
    ("shared.contracts.identity", "aiokafka.partitioner"),
    # Asks whether the database answers, as its neighbour asks the broker.
    ("shared.runtime.database_watch", "psycopg"),
}


def imports(root: Path) -> Iterator[tuple[str, str]]:
    """Each module of ours, and each module that it imports, wherever in it."""
    for top in OURS:
        for file in sorted((root / top).rglob("*.py")):
            module = ".".join(file.relative_to(root).with_suffix("").parts)
            module = module.removesuffix(".__init__")
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Import):
                    yield from ((module, name.name) for name in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    # What is imported from a folder may be a file of it.
                    yield from ((module, f"{node.module}.{name.name}") for name in node.names)


def within(module: str, names: set[str] | dict[str, set[str]]) -> str | None:
    """The longest of the names that is the module or holds it."""
    fit = [name for name in names if module == name or module.startswith(f"{name}.")]
    return max(fit, key=len, default=None)


def faults(root: Path) -> list[str]:
    """Imports that the two tables do not allow."""
    found = set()
    for module, imported in imports(root):
        row = within(module, MAY_IMPORT)
        if row is None:
            found.add(f"{module} is in no row of MAY_IMPORT")
        elif imported.partition(".")[0] in OURS:
            target = within(imported, MAY_IMPORT)
            if target != row and target not in MAY_IMPORT[row]:
                found.add(f"{module} imports {imported}: {row} may not import {target}")
        else:
            stranger = within(imported, UNKNOWN_TO.get(within(module, UNKNOWN_TO) or "", set()))
            exceptions = {name for own, name in EXCEPTIONS if own == module}
            if stranger and not within(imported, exceptions):
                found.add(f"{module} imports {imported}: {row} must not know {stranger}")
    return sorted(found)


@pytest.mark.slow(2)
def test_every_import_is_one_that_the_table_allows():
    assert faults(ROOT) == []


def test_no_row_names_one_that_stands_below_it():
    rows = list(MAY_IMPORT)
    for number, row in enumerate(rows):
        # A single file may import the folder that it is in.
        below = MAY_IMPORT[row] - set(rows[:number]) - {within(row.rpartition(".")[0], MAY_IMPORT)}

        assert not below, f"{row} may import {below}, which stands after it"


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("shared/store/rows.py", "import migrations", "shared.store may not import migrations"),
        (
            "services/scheduler/flow/reading.py",
            "from services.estimator import effects",
            "services.scheduler may not import services.estimator",
        ),
        (
            "services/replay/trace.py",
            "def late():\n    from services.cli import main",
            "services.replay may not import services.cli",
        ),
        (
            "services/cli/page_updates.py",
            "from services.world.pages import WorldPages",
            "services.cli may not import services.world",
        ),
        ("shared/policy/value.py", "import time", "shared.policy must not know time"),
        ("shared/pacing/slots.py", "from aiokafka import structs", "must not know aiokafka"),
        ("shared/runtime/new.py", "import psycopg.rows", "shared.runtime must not know psycopg"),
        ("services/stranger/worker.py", "import math", "is in no row"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path, file, line, fault):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(line)

    [found] = faults(tmp_path)
    assert fault in found


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("services/cli/commands/world.py", "from services.world.worker import main"),
        ("shared/contracts/identity.py", "from aiokafka.partitioner import murmur2"),
        ("services/estimator/worker.py", "from services.estimator import handler\nimport asyncio"),
    ],
)
def test_an_allowed_import_is_not(tmp_path, file, line):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(line)

    assert faults(tmp_path) == []
