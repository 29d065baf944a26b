"""Another version of the workers, in a folder of its own, which runs beside this one."""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.process import StartError
from deploy.local.supervisor import python_argv
from services.verify import skewed

_ASK: Final = """
from shared.runtime import settings
print([settings.__file__, *settings.Settings.model_fields])
"""


@dataclass(frozen=True, slots=True)
class Version:
    """Where a version is, and what it lets itself be told."""

    folder: Path
    """Of a checkout. It runs with the packages that this version has installed."""
    settings: frozenset[str]
    """Those that it knows: none refuses to start for one that came later."""

    def argv(self, clock: Path, kind: str) -> list[str]:
        """Starts a worker of a kind; see `skewed`."""
        return python_argv("-P", str(skewed.__file__), str(clock), "worker", kind)

    def environment(self, shared: Mapping[str, float | int]) -> dict[str, str]:
        """What its workers are told of the settings that all share."""
        known = {f"FRESHET_{k.upper()}": repr(v) for k, v in shared.items() if k in self.settings}
        return {"PYTHONPATH": str(self.folder), **known}


def version_in(folder: Path) -> Version:
    """The version in a folder; raises StartError if its settings cannot be read."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-P", "-c", _ASK],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    place, *names = ast.literal_eval(done.stdout) if done.returncode == 0 else [""]
    # What a folder does not have Python takes from the version that is installed.
    if not Path(place).is_relative_to(folder):
        raise StartError(f"{folder} has no version of Freshet that runs here:\n{done.stderr}")
    return Version(folder, frozenset(names))
