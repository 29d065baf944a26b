"""The tables of crawl rates, made once and kept on disk beside the kernels that make them.

To make them takes seconds of a core, which a scheduler that has just been given its shards needs
for picking; to read them, a hundredth of that.
"""

import contextlib
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.kernel_cache import cache_folder
from shared.policy.kernels import rate_tables as kernels
from shared.policy.kernels.rate_tables import RateTables, make_tables

_FILES: Final = tuple(f"rate_tables.{name}.npy" for name in RateTables._fields)


@cache
def rate_tables() -> RateTables:
    """The tables; where the disk does not have them, or cannot, they are made."""
    # The folder is another one for whatever makes the tables others.
    return _kept(cache_folder(Path(kernels.__file__)))


def _kept(folder: Path) -> RateTables:
    with contextlib.suppress(OSError, ValueError, EOFError):  # not there, or cut off
        return RateTables(*(np.load(folder / name, allow_pickle=False) for name in _FILES))
    tables = make_tables()
    arrays: tuple[NDArray[Any], ...] = tables
    with contextlib.suppress(OSError):  # a full disk, or one that may only be read
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in zip(_FILES, arrays, strict=True):
            _write(folder / name, table)
    return tables


def _write(path: Path, table: NDArray[Any]) -> None:
    """Whole or not at all, whoever writes beside us."""
    written = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with written.open("wb") as file:
            np.save(file, table, allow_pickle=False)
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
