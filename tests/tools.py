"""Tools that are no Python packages: built by `make tools`, or installed."""

import shutil
from pathlib import Path

import pytest

NO_TOOL = "not installed: "
"""Begins the reason of every skip that is due to one, before its name."""

BUILT = Path(__file__).parents[1] / ".tools"


def need_tool(name: str) -> str:
    """Path of a tool; skips the test where it is missing."""
    found = shutil.which(name, path=str(BUILT)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{NO_TOOL}{name} (`make tools` builds it, with Go)")
    return found
