"""A worker on a machine whose clock is wrong, and is set while it works.

Started as `python -m services.verify.skewed FILE worker KIND`; FILE holds by how many seconds the
machine's clock is ahead. Only what a program asks the operating system for is another: the brokers
and PostgreSQL have the real time.
"""

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import Final

_SECONDS: Final = struct.Struct("<d")


def set_clock(file: Path, seconds: float) -> None:
    """Say by how much the clock of a machine is ahead, from now on."""
    if not file.exists():
        file.write_bytes(_SECONDS.pack(seconds))
        return
    with file.open("r+b") as opened:
        opened.write(_SECONDS.pack(seconds))


def main() -> None:
    """Run the rest of the command line with this clock."""
    _, file, *rest = sys.argv
    with Path(file).open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)
    real = time.time

    def skewed() -> float:
        return real() + float(_SECONDS.unpack(ahead)[0])

    time.time = skewed
    sys.argv = [sys.argv[0], *rest]
    runpy.run_module("services.cli.main", run_name="__main__")


if __name__ == "__main__":
    main()
