"""Where the machine code of kernels is kept, and under which names."""

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numba
from llvmlite import binding
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.registry import cpu_target

from shared.policy.calls_apart import LinkedCode
from shared.policy.sources import fingerprint_of

_COMPILERS: Final = ("numba", "llvmlite", "numpy", "scipy")
"""What machine code is made by, and where constants of ours come from."""

_INSTALLED: Final = Path(__file__).parent / "__pycache__"
"""Where the machine code is of what is installed, where its installer could write there."""


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
        self._save_data(self.name_of(key), data)

    def load(self, key: object) -> Any:
        """What was compiled for a kind of arguments; None: nothing was."""
        if self.installed is not None and (found := self.installed.load(key)) is not None:
            return found
        try:
            return self._load_data(self.name_of(key))
        except FileNotFoundError:
            return None

    def name_of(self, key: object) -> str:
        """Of the file for a kind of arguments."""
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return str(self._data_name(int(digest[:12], 16)))


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, with files of ours."""

    _impl_class = LinkedCode

    def __init__(self, function: Callable[..., object], kind: str = "") -> None:
        """Make the cache of one kind of a function's machine code."""
        super().__init__(function)
        stamp, name = self._impl.locator.get_source_stamp(), self._impl.filename_base + kind
        self._cache_file = _Files(self._cache_path, name, stamp)
        folder = cache_folder(Path(function.__code__.co_filename))
        if folder.parent != _INSTALLED:
            installed = _INSTALLED / folder.name / Path(self._cache_path).name
            self._cache_file.installed = _Files(str(installed), name, stamp)
        self._place = f"{folder.name}/{Path(self._cache_path).name}"

    def name_of(self, arguments: tuple[types.Type, ...]) -> str:
        """How the machine code for some arguments is called in each process that would have it: as
        its file, wherever the cache is."""
        key = self._index_key(arguments, cpu_target.target_context.codegen())
        return f"{self._place}/{self._cache_file.name_of(key)}"


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
