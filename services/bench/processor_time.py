"""Processor time and memory of other processes, as Linux counts them."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes have used so far."""

    seconds: float = 0.0
    """Of processors, theirs alone."""
    with_children: float = 0.0
    """... with those of their children that have ended."""
    resident_bytes: int = 0

    def __add__(self, other: Self) -> "Usage":
        return Usage(
            self.seconds + other.seconds,
            self.with_children + other.with_children,
            self.resident_bytes + other.resident_bytes,
        )


def usage_of(process_id: int) -> Usage:
    """What a process has used; nothing if it is not there."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return Usage()
    # The name, in parentheses, may have spaces in it; the fields are numbered as in proc(5).
    fields = stat.rpartition(")")[2].split()
    own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    return Usage(own / _TICKS, (own + ended) / _TICKS, int(fields[21]) * _PAGE_BYTES)


def memory_of(process_id: int) -> tuple[int, int]:
    """Bytes of memory that a process has had at most, and those that are its own alone now."""
    most = own = 0
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process_id}/status").read_text()
        most = sum(_kilobytes(line) for line in status.splitlines() if line.startswith("VmHWM:"))
        shares = Path(f"/proc/{process_id}/smaps_rollup").read_text()
        own = sum(_kilobytes(line) for line in shares.splitlines() if line.startswith("Private_"))
    return most * 1024, own * 1024


def _kilobytes(line: str) -> int:
    return int(line.split()[1])


def children_of(process_id: int) -> list[int]:
    """The processes that a process has started and that are still there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (process / "stat").read_text()
            if int(stat.rpartition(")")[2].split()[1]) == process_id:
                found.append(int(process.name))
    return found


def usage_with_children(process_id: int) -> Usage:
    """What a process and its children have used, living ones and ended ones."""
    own = usage_of(process_id)
    total = Usage(own.with_children, own.with_children, own.resident_bytes)
    return sum((usage_of(child) for child in children_of(process_id)), total)
