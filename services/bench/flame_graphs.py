"""What workers do with their time, as flame graphs: by py-spy, which looks at them from outside."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_SAMPLES_A_SECOND: Final = 100
_PATIENCE_SECONDS: Final = 60.0


class NotDrawn(Exception):
    """There is no flame graph; the text says why, and what helps."""


class FlameGraphs:
    """Flame graphs of some processes, that are being drawn."""

    def __init__(
        self, folder: Path, processes: Mapping[str, int], ending: str, seconds: float
    ) -> None:
        """Begin.

        Args:
            folder: where they come to.
            processes: name → process id of a Python program.
            ending: of each file's name, before `.svg`.
            seconds: how long to look at each, a hundred times a second.

        Raises:
            NotDrawn: py-spy is not installed.
        """
        program = _program()
        folder.mkdir(parents=True, exist_ok=True)
        self._drawn = []
        for name, process_id in processes.items():
            path = folder / f"{name}-{ending}.svg"
            said = tempfile.TemporaryFile()  # noqa: SIM115
            argv = [program, "record", "--pid", str(process_id), "--output", str(path)]
            argv += ["--duration", str(max(round(seconds), 1)), "--rate", str(_SAMPLES_A_SECOND)]
            # Threads that wait, for work or for a server, take no processor time.
            process = subprocess.Popen(  # noqa: S603
                [*argv, "--threads"], stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            self._drawn.append((path, process, said))

    def done(self) -> list[Path]:
        """Wait for them: their files.

        Raises:
            NotDrawn: one could not be drawn.
        """
        failed = []
        for path, process, said in self._drawn:
            try:
                process.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            said.seek(0)
            text = said.read().decode(errors="replace").strip()
            said.close()
            if process.returncode or not path.exists():
                failed.append(f"{path.name}: {text.splitlines()[-1] if text else 'py-spy ended'}")
        if failed:
            raise NotDrawn(
                f"{'; '.join(failed)}. Another process may be looked into by root, or where "
                "kernel.yama.ptrace_scope is 0, and in a container with SYS_PTRACE"
            )
        return [path for path, _, _ in self._drawn]


def pythons(processes: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    """Those of some processes that are Python programs: name → process id."""
    found = {}
    for name, process_id in processes:
        if process_id is None:
            continue
        program = Path(f"/proc/{process_id}/exe")
        if program.exists() and program.resolve().name.startswith("python"):
            found[name] = process_id
    return found


def _program() -> str:
    """py-spy: of this environment, or of the system.

    Raises:
        NotDrawn: there is none.
    """
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise NotDrawn("flame graphs are drawn by py-spy: install it (`pip install py-spy`)")
    return found
