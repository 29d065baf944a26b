"""CI's way to Chromium, with commands that only note how they were called."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from deploy.docs.browser import NAMES

CI = Path(__file__).parents[3] / ".ci"
REAL = ("bash", "env", "touch", "chmod", "true")

NOTES = '#!/usr/bin/env bash\necho "${0##*/} $*" >> "$NOTED"\n'
BOUNDED = NOTES + 'shift 2\nBOUNDED=yes exec "$@"\n'
APT = NOTES + (
    '[ "$BOUNDED" = yes ] && [ "$DEBIAN_FRONTEND" = noninteractive ] || exit 99\n'
    'case "$*" in *"$FAILS"*) exit 100;; esac\n'
    'case "$*" in *download-only*|*update*) ;; *install*) touch "${0%/*}/chromium"; '
    'chmod +x "${0%/*}/chromium";; esac\n'
)
SUDO = NOTES + 'shift\nexec "$@"\n'
REFUSING = NOTES + "exit 1\n"


@pytest.fixture
def machine(tmp_path):
    """A function that runs the script on a machine with these commands, and answers what it said
    and which commands it ran."""
    folder = tmp_path / "bin"
    folder.mkdir()
    noted = tmp_path / "noted"
    noted.touch()

    def add(name, text):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)

    for name in REAL:
        (folder / name).symlink_to(shutil.which(name))

    def run(user=0, fails="nothing", **commands):
        add("id", f"#!/usr/bin/env bash\necho {user}\n")
        add("timeout", BOUNDED)
        for name, text in commands.items():
            add(name.replace("_", "-"), text)
        found = subprocess.run(
            [shutil.which("bash"), CI / "chromium"],
            env={"PATH": str(folder), "NOTED": str(noted), "FAILS": fails},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert found.stdout == ""
        ran = [line.split()[0] for line in noted.read_text().splitlines()]
        return found.stderr, ran, (folder / "chromium").exists()

    return run


def test_root_installs_it_within_a_time(machine):
    said, ran, is_there = machine(apt_get=APT)
    assert (said, is_there) == ("", True)
    assert ran == ["timeout", "apt-get"] * 3


def test_who_may_become_root_without_a_password_installs_it(machine):
    said, ran, is_there = machine(user=1000, apt_get=APT, sudo=SUDO)
    assert (said, is_there) == ("", True)
    assert ran == ["sudo", *["sudo", "timeout", "apt-get"] * 3]


@pytest.mark.parametrize("name", NAMES)
def test_where_one_is_there_nothing_is_done(machine, name):
    said, ran, _ = machine(apt_get=APT, **{name: NOTES})
    assert (said, ran) == ("", [])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "no apt-get"),
        ({"user": 1000, "apt_get": APT}, "only root"),
        ({"user": 1000, "apt_get": APT, "sudo": REFUSING}, "only root"),
        ({"apt_get": APT, "fails": "update"}, "update failed"),
        ({"apt_get": APT, "fails": "download-only"}, "cannot be fetched"),
        ({"apt_get": APT, "fails": "recommends chromium"}, "cannot be installed"),
    ],
)
def test_where_it_cannot_be_installed_the_run_goes_on_with_a_word(machine, given, why):
    said, ran, is_there = machine(**given)
    assert why in said
    assert said.endswith("the tests of the coordinator's pages are left out\n")
    assert not is_there
    if "only root" in why:
        assert "apt-get" not in ran


def test_ci_asks_for_it_before_it_runs_the_tests():
    lines = (CI / "run").read_text().splitlines()
    assert lines.index(".ci/chromium") < lines.index("make test || make again")
    assert os.access(CI / "chromium", os.X_OK)
