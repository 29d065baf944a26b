"""The one way this package compiles its kernels.

Every kernel runs without the interpreter lock, so a worker may call it from a thread, and is
cached on disk, so that a process pays for compilation once per installed version.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, cast

import numba

_IMPORT = b"shared.policy.compiled import"

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile ``function`` with numba, lock-free and cached; division follows IEEE 754."""
    options = {"cache": True, "nogil": True, "error_model": "numpy"}
    return cast("Function", numba.njit(**options)(function))


def compiled_parallel(function: Function) -> Function:
    """As :func:`compiled`, with ``numba.prange`` loops spread over numba's threads."""
    options = {"cache": True, "nogil": True, "error_model": "numpy", "parallel": True}
    return cast("Function", numba.njit(**options)(function))


def _cache_folder() -> Path:
    """Where compiled kernels of exactly these sources are kept.

    Numba's cache knows only the file a kernel is written in, and would go on using a kernel whose
    callees in other files have changed: a wrong number after an upgrade.  Hence the folder is named
    after all sources that have kernels, the services' own ones among them.  (A constant that a
    kernel takes from a file without kernels is not noticed: remove the folder after changing one.)
    """
    digest = hashlib.sha256()
    for source in sorted(_sources()):
        text = source.read_bytes()
        if _IMPORT in text:
            digest.update(text)
    return _base_folder() / f"kernels-{digest.hexdigest()[:12]}"


def _sources() -> Iterator[Path]:
    shared = Path(__file__).parent.parent
    yield from shared.rglob("*.py")
    yield from (shared.parent / "services").glob("*/*.py")


def _base_folder() -> Path:
    """A folder that nobody else can write to: what lies in a cache is run."""
    package = Path(__file__).parent
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(configured)
    if os.access(package, os.W_OK):
        return package / "__pycache__"
    home = Path.home() / ".cache"
    if os.access(home if home.exists() else home.parent, os.W_OK):
        return home / "freshet"
    return Path(tempfile.mkdtemp(prefix="freshet-kernels-"))


numba.config.CACHE_DIR = str(_cache_folder())
