"""What workers do with their time, as flame graphs: by py-spy, which looks at them from outside."""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_SAMPLES_A_SECOND: Final = 50
_GRACE_SECONDS: Final = 5.0
"""Whoever is behind by more, as on a crowded machine, draws what it has."""

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
            seconds: how long to look at each, fifty times a second.

        Raises:
            NotDrawn: py-spy is not installed.
        """
        program = sampler()
        folder.mkdir(parents=True, exist_ok=True)
        self._drawn = []
        for name, process_id in processes.items():
            path = folder / f"{name}-{ending}.svg"
            said = tempfile.TemporaryFile()  # noqa: SIM115
            argv = [program, "record", "--pid", str(process_id), "--output", str(path)]
            argv += ["--duration", str(max(round(seconds), 1)), "--rate", str(_SAMPLES_A_SECOND)]
            # Threads that wait, for work or for a server, take no processor time and are not drawn.
            # A program that is stopped for each look wakes all of them: on a crowded machine they
            # would never be seen to wait.
            argv += ["--threads", "--nonblocking"]
            process = subprocess.Popen(  # noqa: S603
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            self._drawn.append((path, process, said))

    def done(self) -> list[Path]:
        """End them, as the time is over: their files.

        Raises:
            NotDrawn: one could not be drawn.
        """
        failed = []
        deadline = time.monotonic() + _GRACE_SECONDS
        for path, process, said in self._drawn:
            _end(process, deadline - time.monotonic())
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


def _end(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """Have a sampler draw, after some seconds what it has seen until then."""
    try:
        process.wait(max(grace, 0.0))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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


def sampler() -> str:
    """py-spy: of this environment, or of the system.

    Raises:
        NotDrawn: there is none.
    """
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise NotDrawn("flame graphs are drawn by py-spy: install it (`pip install py-spy`)")
    return found
