"""The one way this package compiles its kernels.

Every kernel runs without the interpreter lock, so a worker may call it from a thread, and is
cached on disk, so that a process pays for compilation once per installed version.
"""

import hashlib
import importlib
import os
import platform
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite import binding
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.np import linalg

from shared.policy.sources import fingerprint_of

_COMPILERS: Final = ("numba", "llvmlite", "numpy", "scipy")
"""What machine code is made by, and where constants of ours come from."""

_INSTALLED: Final = Path(__file__).parent / "__pycache__"
"""Where the machine code is of what is installed, where its installer could write there."""

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
    ways_in = {"no_cfunc_wrapper": True}
    options = {"nogil": True, "error_model": "numpy"} | ways_in | more
    # Numba notes its cache's folder when a function is decorated.
    numba.config.CACHE_DIR = str(cache_folder(Path(function.__code__.co_filename)))
    kernel: Any = numba.njit(**options)(function)
    kernel._cache = _Cache(function)  # noqa: SLF001 - numba has no other way in
    kernel.get_call_template = _for_any_whole_number(kernel.get_call_template)
    _kernels.append(kernel)
    return cast("Function", kernel)


def _for_any_whole_number(resolve: Callable[..., object]) -> Callable[..., object]:
    """How a kernel is found for a call by another one: whole numbers are handed over as 64 bits.

    Numba compiles what is called once more for each constant, and for numbers of 32 bits, with all
    that it calls: an eighth of the machine code there would be.
    """

    def resolved(args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> object:
        return resolve(tuple(map(_widest, args)), {name: _widest(kws[name]) for name in kws})

    return resolved


def _widest(kind: types.Type) -> types.Type:
    kind = types.unliteral(kind)
    return types.int64 if kind in types.signed_domain else kind


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


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """A kernel's machine code, for each kind of arguments in a file that is named after them.

    What was installed with the kernel (`freshet kernels`, as the image is built) comes first; it is
    only read.

    Numba numbers the files, and keeps a list of what is in which. Of two processes that compile a
    kernel at one time, for other arguments each, both take the next number: the list of one then
    names what the other wrote, and every later start fails with arguments "of a different type".
    Here two processes that write one file write the same into it.
    """

    installed: "_Files | None" = None

    def save(self, key: object, data: object) -> None:
        """Keep what was compiled for a kind of arguments."""
        self._save_data(self._name_of(key), data)

    def load(self, key: object) -> Any:
        """What was compiled for a kind of arguments; None: nothing was."""
        if self.installed is not None and (found := self.installed.load(key)) is not None:
            return found
        try:
            return self._load_data(self._name_of(key))
        except FileNotFoundError:
            return None

    def _name_of(self, key: object) -> str:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return str(self._data_name(int(digest[:12], 16)))


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, with files of ours."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        stamp, name = self._impl.locator.get_source_stamp(), self._impl.filename_base
        self._cache_file = _Files(self._cache_path, name, stamp)
        folder = cache_folder(Path(function.__code__.co_filename))
        if folder.parent != _INSTALLED:
            installed = _INSTALLED / folder.name / Path(self._cache_path).name
            self._cache_file.installed = _Files(str(installed), name, stamp)


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


@cache
def cache_folder(source: Path) -> Path:
    """Where the compiled kernels of a source are kept.

    Numba's cache knows only the file a kernel is written in, and would go on using a kernel whose
    callees, or constants, in other files have changed: a wrong number after an upgrade. Hence the
    folder is named after all that the machine code depends on: the source and what it imports at
    any depth, the versions that compile it, and the processor.
    """
    key = f"{fingerprint_of(source)} {_machine()}"
    return _base_folder() / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


@cache
def _machine() -> str:
    """The compilers' versions, and the processor that they compile for: that which they are told
    (`NUMBA_CPU_NAME`, `NUMBA_CPU_FEATURES`), or else this machine's."""
    versions = [f"{name} {version(name)}" for name in _COMPILERS]
    name, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES
    name = binding.get_host_cpu_name() if name is None else name
    features = binding.get_host_cpu_features().flatten() if features is None else features
    return " ".join([platform.python_version(), platform.machine(), *versions, name, features])


@cache
def _base_folder() -> Path:
    """A folder that nobody else can write to: what lies in a cache is run."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(configured)
    if os.access(_INSTALLED.parent, os.W_OK):
        return _INSTALLED
    home = Path.home() / ".cache"
    if os.access(home if home.exists() else home.parent, os.W_OK):
        return home / "freshet"
    return Path(tempfile.mkdtemp(prefix="freshet-kernels-"))
