"""The one way this package compiles its kernels.

Every kernel runs without the interpreter lock, so a worker may call it from a thread, and is
cached on disk, so that a process pays for compilation once per installed version.
"""

import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite import binding
from numba.np import linalg

from shared.policy.calls_apart import call_apart
from shared.policy.kernel_cache import KernelCache, cache_folder

Function = TypeVar("Function", bound=Callable[..., object])

_kernels: Final[list[Any]] = []
"""Of numba's dispatchers, all that this process has."""


def compiled(function: Function) -> Function:
    """Compile ``function`` with numba, lock-free and cached; division follows IEEE 754."""
    return _compiled(function, {})


def compiled_parallel(function: Function) -> Function:
    """As :func:`compiled`, with ``numba.prange`` loops spread over numba's threads."""
    return _compiled(function, {"parallel": True})


def _compiled(function: Function, more: dict[str, bool]) -> Function:
    # Nobody calls one as C does: without the way in for that there is less to compile and to load.
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True} | more
    kernel, _ = _dispatcher(function, options, "")
    called, cache = _dispatcher(function, options | {"no_cpython_wrapper": True}, "-called")
    call_apart(kernel, called, cache.name_of)
    return cast("Function", kernel)


def _dispatcher(function: Function, options: dict[str, Any], kind: str) -> tuple[Any, KernelCache]:
    # Numba notes its cache's folder when a function is decorated.
    numba.config.CACHE_DIR = str(cache_folder(Path(function.__code__.co_filename)))
    kernel: Any = numba.njit(**options)(function)
    kernel._cache = cache = KernelCache(function, kind)  # noqa: SLF001 - numba has no other way in
    _kernels.append(kernel)
    return kernel, cache


def _tell_nobody_of_llvm() -> None:
    """Take numba's clock off LLVM's lock: it is told of every call of LLVM that begins and ends.

    There are tens of thousands in a worker's start. Who wants to know how long LLVM takes has a
    profiler. A release of llvmlite that keeps its listeners elsewhere takes longer again.
    """
    lock = getattr(binding.ffi.lib, "_lock", None)
    for began, ended in tuple(getattr(lock, "_cblist", ())):
        if began.__module__ == "numba.core.base":
            binding.ffi.unregister_lock_callback(began, ended)


_tell_nobody_of_llvm()


def _leave_linear_algebra() -> None:
    """Let numba load what it has for arrays without asking whether scipy could multiply matrices.

    To ask loads all of scipy.linalg, for a tenth of a second in every worker. No kernel of ours
    multiplies matrices; one that does is refused as it is compiled where scipy cannot.
    """
    asked = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = asked


_leave_linear_algebra()


class LateKernels:
    """Kernels that a process compiles, or reads from the cache, although it was ready.

    Its work stands still meanwhile: on a busy machine whose cache is cold, for half a minute. So
    the warm-up should have had them.
    """

    def __init__(self) -> None:
        self._before = _variants()

    def names(self) -> list[str]:
        """Those that came since this was made."""
        return sorted(name for name, count in _variants().items() if count > self._before[name])


def _variants() -> Counter[str]:
    """Kernel → for how many kinds of arguments there is machine code."""
    variants: Counter[str] = Counter()
    for kernel in _kernels:
        name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"
        variants[name] += len(kernel.overloads)
    return variants
