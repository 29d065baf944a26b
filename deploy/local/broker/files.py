"""Open files: few enough for any limit, however many partitions there are."""

import os
import resource
from collections import OrderedDict
from pathlib import Path

DEFAULT_OPEN_FILES = 800
"""Segment files kept open; connections need descriptors as well."""


class FilePool:
    """Opens files for reading and appending on demand, and closes those unused for longest."""

    def __init__(self, capacity: int = DEFAULT_OPEN_FILES) -> None:
        self._capacity = capacity
        self._open: OrderedDict[Path, int] = OrderedDict()
        self.complains_at_ms = 0
        """When a file that cannot be written is next told of, Unix milliseconds."""

    def descriptor(self, path: Path) -> int:
        """Return an open descriptor of the file, made if it is missing; raises OSError."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._open[path] = descriptor
        if len(self._open) > self._capacity:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return descriptor

    def close(self, path: Path) -> None:
        """Close the file if it is open."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        """Close every file."""
        while self._open:
            _, descriptor = self._open.popitem()
            os.close(descriptor)


def raise_descriptor_limit() -> int:
    """Raise this process's limit of open files as far as allowed, and return a pool's capacity."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16_384 if hard == resource.RLIM_INFINITY else min(hard, 16_384)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(64, min(DEFAULT_OPEN_FILES, soft // 2))


def sync_file(path: Path) -> None:
    """Flush a file to the disk; one that has been deleted meanwhile needs no flush."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Flush a directory, so that a rename in it survives a power cut."""
    sync_file(path)


def write_all(descriptor: int, parts: list[bytes | memoryview], at: int) -> int:
    """Write the parts one after the other from byte `at` on; return the bytes written.

    Raises OSError when the disk is full or failing; what was written by then is the caller's to cut
    off.
    """
    written = os.pwritev(descriptor, parts, at)
    total = sum(len(part) for part in parts)
    if written < total:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            count = os.pwrite(descriptor, rest, at + written)
            written += count
            rest = rest[count:]
    return written
