"""Nothing lies about that nobody calls. Tests are not callers.

Vulture goes by names: what is not named anywhere else is dead, unless it is one of those below.
Names of settings, message fields and columns are left out: their readers are elsewhere.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
import vulture

ROOT = Path(__file__).parents[3]
SHIPPED = ("services", "shared", "deploy", "migrations")

REGISTERED_BY = [
    "@app.page",
    "@breaks",
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


def unused(paths: Iterable[Path]) -> dict[str, str]:
    """Name of what is dead → where it is."""
    found = vulture.Vulture(ignore_decorators=REGISTERED_BY)
    found.scavenge([str(path) for path in paths])
    return {
        item.name: f"{item.filename}:{item.first_lineno}"
        for item in found.get_unused_code()
        if item.typ != "variable" or item.name.isupper()
    }


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
