"""Where the servers of tests have their files.

A migrated database is over 600 files, the topics of an installation are hundreds, and most tests
make them and remove them again. On a disk that costs a processor more than all else they do.
"""

import os
import shutil
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
ROOM_BYTES = 8 << 30
"""What the servers of all workers of a run may come to write, and as much again."""


def where_files_cost_least(memory: Path, room: int) -> Path | None:
    """The machine's memory, if there is room; None: where temporary files are.

    What is lost with the power nobody wants back. Programs may not be run from there everywhere.

    Args:
        memory: folder of a file system in it.
        room: bytes that it must have free, and the machine as well.
    """
    if not (memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)):
        return None
    free = min(shutil.disk_usage(memory).free, psutil.virtual_memory().available)
    return memory if free >= room else None


def leftovers(folder: Path) -> list[str]:
    """Command lines of the processes that still run in, or on, a folder."""
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return [" ".join(line) for line in lines if any(str(folder) in part for part in line)]
