"""Whoever looks for something finds its folder, or file, in a table that is whole."""

import re

import pytest

from deploy.docs.places import TOP

HOUSE = TOP / "docs/house/index.md"
LINK = re.compile(r"\]\(\.\./\.\./([\w./-]+?)/?\)")
"""To a folder of the repository, from the house's page."""


def rows(text):
    """The lines of a text's tables."""
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def folders(top):
    """Those below a folder that have something in them."""
    return {
        f"{top}/{path.name}"
        for path in (TOP / top).iterdir()
        if path.is_dir()
        and {child.name for child in path.iterdir()} - {"__pycache__"}
        and path.name != "__pycache__"
    }


@pytest.mark.parametrize("top", ["services", "shared", "deploy"])
def test_each_folder_stands_in_the_houses_table(top):
    assert folders(top) <= set(LINK.findall(rows(HOUSE.read_text())))


def test_each_file_of_the_simulator_stands_in_its_table():
    folder = TOP / "services/verify/simulation"
    told = set(re.findall(r"`([\w./]+)`", rows((folder / "README.md").read_text())))
    there = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert there <= told
    assert {name for name in told if name.endswith((".py", "/"))} - there == set()
