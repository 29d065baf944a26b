"""The one way this package compiles its kernels.

Every kernel runs without the interpreter lock, so a worker may call it from a thread, and is
cached on disk, so that a process pays for compilation once per installation.  Numba's cache looks
only at the file a kernel is written in: after editing a kernel that others call, remove the
``__pycache__`` folders of this package.
"""

from collections.abc import Callable
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
