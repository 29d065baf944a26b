"""The one way this package compiles its kernels.

Every kernel runs without the interpreter lock, so a worker may call it from a thread, and is
cached on disk, so that a process pays for compilation once per installed version.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba

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
    after all sources of the package.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        digest.update(source.read_bytes())
    base = package / "__pycache__"
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        base = Path(configured)
    elif not os.access(package, os.W_OK):
        base = Path(tempfile.gettempdir()) / f"freshet-kernels-{os.getuid()}"
    return base / f"kernels-{digest.hexdigest()[:12]}"


numba.config.CACHE_DIR = str(_cache_folder())
