"""`make setup` says what it needs before it makes anything."""

import os
import subprocess
import sys
import tomllib

import pytest
from packaging.specifiers import SpecifierSet

from deploy.docs.places import TOP

NEEDED = SpecifierSet(
    tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["requires-python"]
)
MADE = 7
"""Exit code of the Python below where an environment is to be made."""


@pytest.fixture
def set_up(tmp_path):
    """Sets up with a Python of some version, and with or without what makes environments."""

    def call(minor, *, ensurepip=True):
        python = tmp_path / "python"
        python.write_text(
            f"#!{sys.executable}\n"
            "import sys\n"
            f"if sys.argv[1] != '-c':\n    sys.exit({MADE})\n"
            f"sys.version_info = (3, {minor}, 1, 'final', 0)\n"
            f"if not {ensurepip}:\n    sys.modules['ensurepip'] = None\n"
            "exec(sys.argv[2])\n"
        )
        python.chmod(0o755)
        environment = {n: v for n, v in os.environ.items() if not n.startswith("MAKE")}
        return subprocess.run(
            ["make", "setup", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
            cwd=TOP,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.mark.parametrize("minor", range(9, 17))
def test_a_python_that_does_not_do_is_named_with_what_does(set_up, minor):
    done = set_up(minor)
    assert done.returncode != 0
    is_refused = "Freshet needs Python 3.11 to 3.13" in done.stderr
    assert is_refused != (f"Error {MADE}" in done.stderr)
    assert is_refused == (f"3.{minor}.1" not in NEEDED)
    if is_refused:
        assert "PYTHON=python3.12" in done.stderr


def test_a_python_that_makes_no_environments_is_told_of_its_package(set_up):
    done = set_up(12, ensurepip=False)
    assert done.returncode != 0
    assert "apt install python3-venv" in done.stderr
    assert "Traceback" not in done.stderr
