"""Disks of their own for servers, which can be filled: file systems in memory, made smaller.

They are mounted where nobody but this process and its children sees them, and are gone with it,
however it ends.
"""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.local.process import StartError

ROOM: Final = 4 << 30
"""Bytes that a disk has while it is not full; memory is used for what is stored alone."""

_OWN_MOUNTS: Final = 0x20000  # CLONE_NEWNS
_RECURSIVE: Final = 0x4000  # MS_REC
_PRIVATE: Final = 1 << 18  # MS_PRIVATE
_AGAIN: Final = 0x20  # MS_REMOUNT
_SYS_ADMIN: Final = 21
_FILL_TRIES: Final = 100


def may_mount() -> bool:
    """Whether this process may mount file systems; Linux alone."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    (line,) = (line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _SYS_ADMIN & 1)


def keep_mounts_apart() -> None:
    """What this thread mounts from now on is seen by itself and by what it starts alone.

    Raises StartError: it is not allowed.
    """
    if _libc().unshare(_OWN_MOUNTS):
        raise _refused("mounts of its own")
    _mount(None, Path("/"), None, _RECURSIVE | _PRIVATE, None)


class Disk:
    """A file system in memory."""

    def __init__(self, folder: Path) -> None:
        """Say where it is to be; what is in that folder is not seen while it is mounted."""
        self._folder = folder

    def mount(self) -> None:
        """Make it, empty; raises StartError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        _mount("freshet", self._folder, "tmpfs", 0, f"size={ROOM},mode=0755")

    @contextmanager
    def full(self) -> Iterator[None]:
        """No byte more can be stored, while what is there can be read and written over.

        Raises StartError: others go on writing faster than it is filled.
        """
        self._fill()
        try:
            yield
        finally:
            self._resize(ROOM)

    def _fill(self) -> None:
        for _ in range(_FILL_TRIES):
            room = os.statvfs(self._folder)
            try:
                self._resize((room.f_blocks - room.f_bfree) * room.f_frsize)
            except StartError:
                continue  # something was written meanwhile: less than what is stored is refused
            return
        raise StartError(f"the disk {self._folder} cannot be filled")

    def _resize(self, size: int) -> None:
        _mount(None, self._folder, None, _AGAIN, f"size={size}")

    def copy_to(self, folder: Path) -> None:
        """Keep what is stored, beyond the end of this process."""
        shutil.copytree(
            self._folder, folder, symlinks=True, ignore=lambda _, names: _sockets(names)
        )


def _sockets(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(".s.")]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(
    source: str | None, target: Path, kind: str | None, flags: int, data: str | None
) -> None:
    def coded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    if _libc().mount(coded(source), os.fsencode(target), coded(kind), flags, coded(data)):
        raise _refused(f"a disk at {target}")


def _refused(what: str) -> StartError:
    why = os.strerror(ctypes.get_errno())
    return StartError(f"the system gives this process no {what}: {why}")
