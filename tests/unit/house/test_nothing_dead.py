"""Nothing lies about that nobody calls. Tests are not callers.

Vulture goes by names: what is not named anywhere else is dead, unless it is one of those below.
Names of settings, message fields and columns are left out: their readers are elsewhere. What stands
at the top of a module is looked for by the module's name too: a `write` or a `log` is named
everywhere.
"""

import ast
import contextlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
import vulture

ROOT = Path(__file__).parents[3]
SHIPPED = ("services", "shared", "deploy", "migrations")

REGISTERED_BY = [
    "@app.page",
    "@breaks",
    "@click.command",
    "@command.command",
    "@model_validator",
    "@overload",
]
"""Decorators that take a function to call it later."""

CALLED_BY_OTHERS = {
    "aiokafka": {"increment_sequence_number"},
    "click": {"format_commands"},
    "faust": {"_new_web"},
    "alembic": {"downgrade"},
    "asyncio": {
        *("_process_events", "_run_once", "_write_to_self"),
        *("call_at", "call_exception_handler"),
    },
    "html.parser": {"handle_endtag", "handle_startendtag"},
    "mkdocs": {"on_files", "on_page_markdown"},
    "mode": {"on_start", "on_stop"},
    "psycopg": {"dump", "get_key"},
    "pydantic": {"settings_customise_sources"},
}
"""Library → methods of ours that it calls."""

READ_BY_OTHERS = {
    "numba": {"CACHE_DIR", "mangled_name"},
    "aiokafka": {"FLEXIBLE_VERSION", "SCHEMA", "_max_partition_fetch_bytes"},
    "asyncio": {"_log_destroy_pending"},
    "expat": {
        *("buffer_text", "CharacterDataHandler", "EntityDeclHandler"),
        *("EndElementHandler", "StartElementHandler"),
    },
    "faust": {"spinner"},
    "psycopg": {"isolation_level", "itersize", "prepare_threshold", "prepared_max"},
    "click": {"help"},
    "protobuf, in OpenTelemetry's spans": {
        *("parent_span_id", "start_time_unix_nano", "end_time_unix_nano"),
        *("string_value", "int_value"),
    },
    "protobuf, in what `make api` makes": {
        *("_loaded_options", "_serialized_options"),
        *("_serialized_end", "_serialized_start"),
    },
    "sqlalchemy, by what it knows of all tables": {
        "CoordinatorLease",
        "Deployment",
        "ErasedPage",
        "LetInHost",
        "LetInPage",
        "MultiplierRecord",
        "OBSERVATIONS",
        "OperatorChange",
        "PageUrl",
        "PingAccount",
        "ShardClaim",
        "ShardOwner",
        "ShardSplit",
        "StreamPosition",
        "StreamCursor",
        "StreamTopic",
        "UnansweredPage",
        "WatchedSite",
        "WatchedSource",
        "WebSubSubscription",
    },
}
"""Who → what we set for it."""

FORMULAS = {
    "fit_rings",
    "from_display",
    "greedy_cis_plus_value",
    "harmonic_threshold",
    "observation_rates",
    "signal_rates",
}
"""Of the papers; the library of the mathematics offers them, and its tour shows them."""

LOADED_BY_NAME = {
    "services.*.worker.main": "`freshet worker` loads the worker that is named",
    "services.bench.*.run": "so does `freshet bench`",
    "deploy.docs.*.page": "the site's pages that are made from code (`deploy.docs.places`)",
    "migrations.versions.*": "alembic",
    "shared.policy.demand.merge": "the mathematics' tour shows it",
    "shared.policy.sources.sources_of": "the same; what a kernel's name is made of",
    "services.bench.value_reference.staircase_value": "a value that the tests compare with",
}
"""What is looked for by module → who has it all the same."""


def unused(paths: Iterable[Path]) -> dict[str, str]:
    """Name of what is dead → where it is."""
    found = vulture.Vulture(ignore_decorators=REGISTERED_BY)
    found.scavenge([str(path) for path in paths])
    return {
        item.name: f"{item.filename}:{item.first_lineno}"
        for item in found.get_unused_code()
        if item.typ != "variable" or item.name.isupper()
    }


def modules(root: Path, tops: Iterable[str]) -> dict[str, ast.Module]:
    """Name of a module → what stands in it."""
    return {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            file.read_bytes()
        )
        for top in tops
        for file in (root / top).rglob("*.py")
        if not file.stem.endswith("_pb2")
    }


def named_in(module: str, tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of whatever is named in a module, also in text: an annotation, or a path."""
    places: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            places |= {name.asname or name.name: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                yield node.module, name.name
                places[name.asname or name.name] = f"{node.module}.{name.name}"
    own_names = {
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"TypeVar", "NewType"}
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield module, node.id
        elif isinstance(node, ast.Attribute):
            base = ast.unparse(node.value)
            yield places.get(base, base), node.attr
        elif isinstance(node, ast.Constant) and node not in own_names:
            with contextlib.suppress(SyntaxError, TypeError, ValueError):
                yield from named_in(module, ast.parse(node.value, mode="eval"))


def written_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and line of what stands at the top of a module, but for what its making registers."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and not name.id.startswith("__"):
                        yield name.id, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            by = [f"@{ast.unparse(one)}" for one in node.decorator_list]
            is_table = isinstance(node, ast.ClassDef) and "Base" in map(ast.unparse, node.bases)
            if not is_table and not any(
                fnmatch(one, f"{known}*") for one in by for known in REGISTERED_BY
            ):
                yield node.name, node.lineno


def unnamed(root: Path, tops: Iterable[str]) -> dict[str, int]:
    """Module and name of what nobody names, neither the module itself nor another → its line."""
    trees = modules(root, tops)
    named = {found for module, tree in trees.items() for found in named_in(module, tree)}
    return {
        f"{module}.{name}": line
        for module, tree in trees.items()
        for name, line in written_in(tree)
        if (module, name) not in named
    }


@pytest.mark.slow(6)
def test_whatever_a_module_has_somebody_names_of_it():
    known = set().union(*CALLED_BY_OTHERS.values(), *READ_BY_OTHERS.values(), FORMULAS)
    dead = {
        place: line
        for place, line in unnamed(ROOT, SHIPPED).items()
        if place.rpartition(".")[2] not in known
    }
    loaded = {place: [one for one in LOADED_BY_NAME if fnmatch(place, one)] for place in dead}

    assert {place: dead[place] for place, by in loaded.items() if not by} == {}
    met = {one for by in loaded.values() for one in by}
    assert met == set(LOADED_BY_NAME), "these are named now, or are gone: strike them off"


@pytest.mark.slow(3)
def test_whatever_is_written_has_a_caller():
    known = set().union(*CALLED_BY_OTHERS.values(), *READ_BY_OTHERS.values(), FORMULAS)
    dead = unused(ROOT / top for top in SHIPPED)

    assert {name: place for name, place in dead.items() if name not in known} == {}
    assert known <= set(dead), "these have callers now, or are gone: strike them off"


def test_what_is_dead_is_found(tmp_path):
    source = """
import click

LEAST = 1
MOST = 2

class Page:
    def show(self):
        return MOST

    def hide(self):
        return 0

@command.command()
def listed():
    return Page().show()

def forgotten():
    return 1
"""
    (tmp_path / "pages.py").write_text(source)

    assert set(unused([tmp_path])) == {"click", "LEAST", "hide", "forgotten"}


def test_what_is_dead_under_a_name_that_others_have_is_found(tmp_path):
    sources = {
        "a": """
from typing import TypeVar
from top import b

log = "log of a"
T = TypeVar("T")
Kind = TypeVar("Kind")
first, second = 1, 2

def write(kind: "list[Kind]"):
    return b.write(first)

def asked_for():
    \"\"\"Calls asked_for, but only here.\"\"\"

class Later:
    pass

class Table(Base):
    pass

@command.command("list")
def list_():
    return "top.b.replaced"
""",
        "b": """
from top.a import list_

log = "log of b"

def write(one):
    log.info(one)

def replaced():
    pass

def later() -> "Later | None":
    pass
""",
    }
    (tmp_path / "top").mkdir()
    for name, source in sources.items():
        (tmp_path / "top" / f"{name}.py").write_text(source)

    found = unnamed(tmp_path, ["top"])
    assert set(found) == {
        *("top.a.log", "top.a.T", "top.a.second", "top.a.write", "top.a.asked_for"),
        *("top.a.Later", "top.b.later"),
    }
