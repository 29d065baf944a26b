"""What is locked can be installed by everybody who may run Freshet."""

import re
from importlib import metadata

from packaging.specifiers import SpecifierSet

from deploy.docs.places import TOP

OLDEST = "3.11.0"
"""README: Python 3.11 or newer. Where this fails: `make lock` resolves for it."""


def locked():
    lock = (TOP / "requirements-dev.lock").read_text()
    return re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)


def test_all_of_it_runs_on_the_oldest_python():
    assert len(locked()) > 100
    needed = {name: needs(name) for name in locked()}
    assert {name: need for name, need in needed.items() if OLDEST not in SpecifierSet(need)} == {}


def needs(name):
    try:
        return metadata.metadata(name).get("Requires-Python") or ""
    except metadata.PackageNotFoundError:
        return ""  # Not for this platform.
